// SPDX-License-Identifier: Apache-2.0
// tests/interface/structs.cpp: how a C++ program fills structs and has them filled. check_headers
// compiles it.
#include "quern/cache.h"
#include "quern/warm.h"

// C++17: members.
qn_status_t by_members(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                       qn_function_t** out_function);
qn_status_t by_members(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                       qn_function_t** out_function) {
  qn_lookup_options_t options{};
  options.struct_size = sizeof options;
  options.tier = QN_TIER_FAST;
  qn_lookup_info_t info{};
  info.struct_size = sizeof info;
  return qn_engine_function(engine, module, target, "f", &options, &info, out_function);
}

#if __cplusplus >= 202002L
// C++20: designators, in the order of the members.
qn_status_t by_designators(qn_engine_t* engine, const qn_warm_list_t* list);
qn_status_t by_designators(qn_engine_t* engine, const qn_warm_list_t* list) {
  auto on_progress = [](void*, const qn_warm_result_t* so_far, const qn_warm_item_t*) {
    return so_far->counts[QN_WARM_FAILED] == 0;
  };
  qn_warm_options_t options{.struct_size = sizeof options, .jobs = 2, .on_progress = on_progress};
  qn_warm_result_t result{.struct_size = sizeof result};
  return qn_warm(engine, list, &options, &result);
}
#endif
