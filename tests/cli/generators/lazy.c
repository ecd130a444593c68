// SPDX-License-Identifier: Apache-2.0
// tests/cli/generators/lazy.c: a plugin with a kind of targets whose generator is opened at a miss.
// The generator is faulty.c; its code depends on the program "lazy-compiler", which tests put into
// a folder of PATH.
#include "quern/backend.h"

static const char* const files[] = {"lazy-compiler"};
static const char* const used[] = {"interp"};
static const qn_generator_info_t generator = {
    .struct_size = sizeof(qn_generator_info_t),
    .name = "lazy",
    .object = "lazy_generator.so",
    .file_count = 1,
    .files = files,
    .used_count = 1,
    .used = used,
};
static const qn_target_kind_info_t kind = {
    .struct_size = sizeof(qn_target_kind_info_t),
    .name = "lazy",
    .doc = "for tests: code without effect",
    .codegen = "lazy",
    .device_type = QN_DEVICE_CPU,
};

static const qn_generator_info_t* const infos[] = {&generator};
static const qn_target_kind_info_t* const kinds[] = {&kind};
static const qn_plugin_t plugin = {
    .abi_version = QN_PLUGIN_ABI_VERSION,
    .struct_size = sizeof(qn_plugin_t),
    .name = "lazy",
    .kind_count = 1,
    .kinds = kinds,
    .info_count = 1,
    .infos = infos,
};

QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version);
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version) {
  return abi_version == QN_PLUGIN_ABI_VERSION ? &plugin : NULL;
}
