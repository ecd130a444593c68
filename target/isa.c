// SPDX-License-Identifier: Apache-2.0
// target/isa.c: checks whether a processor has the extensions that code needs; devices.c does the
// same for GPUs.
//
// Runs on every load of an artifact. So it reads the canonical form directly, without a JSON
// library and without allocating. It refuses text of any other form.
#include "target/target.h"

// Skips `literal`; false when the text differs.
static bool take(const char** inout_at, const char* literal) {
  size_t size = strlen(literal);
  if (strncmp(*inout_at, literal, size) != 0) return false;
  *inout_at += size;
  return true;
}

// Takes a string without escapes, up to the closing quote.
static bool take_string(const char** inout_at, qn_str_t* out) {
  size_t size = strcspn(*inout_at, "\"\\");
  *out = (qn_str_t){*inout_at, size};
  if ((*inout_at)[size] != '"') return false;
  *inout_at += size + 1;
  return true;
}

static qn_status_t unreadable(const char* isa_json) {
  return qn_status_make(QN_STATUS_INCOMPATIBLE, "needs of code cannot be read: '%.200s'", isa_json);
}

// Both lists are sorted, so one pass over the table finds all names of the text. A name out of
// order is not found, which is a refusal.
static int find_from(const qn__target_arch_t* arch, qn_str_t name, size_t* inout_next) {
  for (size_t i = *inout_next; i < arch->feature_count; ++i) {
    const char* known = arch->features[i].name;
    if (strncmp(known, name.data, name.size) != 0 || known[name.size] != '\0') continue;
    *inout_next = i + 1;
    return (int)i;
  }
  return -1;
}

static qn_status_t check_cpu(const char* isa_json, const char* at,
                             const qn__target_host_cpu_t* host) {
  qn_str_t missing = {NULL, 0};
  bool is_first = true;
  size_t next = 0;
  while (!take(&at, "]")) {
    qn_str_t name;
    if (!is_first && !take(&at, ",")) return unreadable(isa_json);
    if (!take(&at, "\"") || !take_string(&at, &name)) return unreadable(isa_json);
    is_first = false;
    if (missing.data || !host->arch) continue;
    if (!qn__features_has_index(host->features, find_from(host->arch, name, &next))) missing = name;
  }
  qn_str_t triple;
  if (!take(&at, ",\"kind\":\"cpu\",\"mtriple\":\"") || !take_string(&at, &triple) ||
      strcmp(at, "}") != 0) {
    return unreadable(isa_json);
  }
  const char* machine = host->arch ? host->arch->name : "an unknown architecture";
  if (!host->arch || qn__arch_of_triple(triple) != host->arch) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE, "code is for %.*s, this machine is %s",
                          QN_STR_ARG(triple), machine);
  }
  if (!missing.data) return QN_OK;
  int index = qn__feature_find(host->arch, missing);
  bool is_tile = index >= 0 && host->arch->features[index].state == QN__STATE_TILE;
  return qn_status_make(
      QN_STATUS_INCOMPATIBLE, "code needs the extension '%.*s', which this machine (%s) lacks%s",
      QN_STR_ARG(missing), host->model, is_tile ? ", or does not let this process use" : "");
}

qn_status_t qn__isa_json_check_against(const char* isa_json, const qn__target_host_cpu_t* host) {
  if (!isa_json) return unreadable("");
  const char* at = isa_json;
  if (take(&at, "{\"features\":[")) return check_cpu(isa_json, at, host);
  // These run everywhere.
  if (strcmp(at, "{\"kind\":\"interp\"}") == 0 || strcmp(at, "{\"kind\":\"null\"}") == 0) {
    return QN_OK;
  }
  return unreadable(isa_json);
}

qn_status_t qn__isa_json_check(const char* isa_json) {
  return qn__isa_json_check_against(isa_json, qn__host_cpu());
}
