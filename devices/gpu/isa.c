// SPDX-License-Identifier: Apache-2.0
// devices/gpu/isa.c: checks that a device has what an artifact requires.
//
// The table of the target's kind (target/options.inc, or a registered kind) names the options and
// how each is compared.
//
// Read next: target/devices.c.
#include "devices/gpu/isa.h"
#include "target/target.h"

// Finds the value of "kind" in canonical JSON, which selects the table for the other options.
static bool read_kind(const char* json, char* out, size_t out_size) {
  static const char name[] = "\"kind\":\"";
  const char* at = json ? strstr(json, name) : NULL;
  if (!at) return false;
  at += sizeof name - 1;
  size_t size = strcspn(at, "\"\\");
  if (size == 0 || size >= out_size || at[size] != '"') return false;
  memcpy(out, at, size);
  out[size] = '\0';
  return true;
}

qn_status_t qn__gpu_isa_check(const char* isa_json, int32_t id,
                              qn_status_t (*property)(int32_t id, const char* name,
                                                      qn_attribute_value_t* out_value)) {
  char kind[64];
  if (!read_kind(isa_json, kind, sizeof kind) || !qn__target_kind_find(qn__str(kind))) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE, "needs of code cannot be read: '%.200s'",
                          isa_json ? isa_json : "");
  }
  return qn__isa_json_check_device(isa_json, kind, id, property);
}
