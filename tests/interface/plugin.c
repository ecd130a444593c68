// SPDX-License-Identifier: Apache-2.0
// tests/interface/plugin.c: a plugin that adds nothing. test_tables.c gives it the size of its
// table by the environment variable PLUGIN_SIZE, and a byte beyond by PLUGIN_TAIL.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "quern/backend.h"

QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version);
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version) {
  static union {
    qn_plugin_t table;
    char room[sizeof(qn_plugin_t) + 64];
  } plugins[16];
  static int next;
  const char* size = getenv("PLUGIN_SIZE");
  const char* tail = getenv("PLUGIN_TAIL");
  if (abi_version != QN_PLUGIN_ABI_VERSION || !size || next == 16) return NULL;
  qn_plugin_t* table = &plugins[next].table;
  table->abi_version = QN_PLUGIN_ABI_VERSION;
  table->struct_size = strtoul(size, NULL, 10);
  // What is beyond the size of an older table is not the table's.
  table->name = "sized";
  memset(&table->kind_count, 0xff, sizeof table->kind_count);
  if (table->struct_size >= sizeof *table) table->kind_count = 0;
  if (tail) plugins[next].room[sizeof *table] = 1;
  next++;
  return table;
}
