// devices/gpu/isa.c: whether a device has what an artifact asks for.
//
// Which options count, and how a device's answer is held against each, is in the table of the
// target's kinds (target/options.inc, or whoever registered the kind). Thread rule: any thread.
// Read next: target/devices.c.
#include "devices/gpu/run.h"
#include "target/target.h"

// The value of "kind" in canonical JSON. Which text it is decides only whose table reads the rest.
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
