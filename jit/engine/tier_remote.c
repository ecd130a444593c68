// SPDX-License-Identifier: Apache-2.0
// jit/engine/tier_remote.c: the store that a fleet shares, as a tier. All work is in
// cache/remote.h.
#include "cache/remote.h"

#include "jit/engine/engine.h"

// The interval at which a lookup polls for an entry that another machine is making.
#define CLAIM_POLL_NS INT64_C(50000000)
#define NS_PER_MS INT64_C(1000000)

static qn__remote_t* remote_of(const qn__tier_t* tier) {
  return tier->self;
}

static qn_status_t open(qn__tier_t* tier, const qn__tier_options_t* options) {
  (void)options;
  const qn_engine_t* engine = tier->engine;
  const qn__config_t* config = &engine->config;
  tier->has_claims = qn__config_number(config, QN__SETTING_remote_role) != 0;
  const char* url = qn__config_get(config, QN__SETTING_remote);
  if (url[0] == '\0') return QN_OK;
  int64_t ttl_ns = (int64_t)qn__config_number(config, QN__SETTING_remote_ttl);
  qn__remote_options_t remote_options = {
      .allocator = engine->allocator,
      .url = url,
      .key_file = qn__config_get(config, QN__SETTING_remote_key),
      .trust_domain = qn__config_get(config, QN__SETTING_remote_domain),
      .may_write = engine->writes_tiers && tier->has_claims,
      .timeout_ns = (int64_t)qn__config_number(config, QN__SETTING_remote_timeout),
      .ttl_ms = ttl_ns == 0          ? -1
                : ttl_ns < NS_PER_MS ? 1
                                     : ttl_ns / NS_PER_MS,
      .max_entry_bytes = qn__config_number(config, QN__SETTING_remote_max_entry),
      .plugin_directory = qn__tier_plugin_directory(tier, "redis"),
  };
  qn__remote_t* remote = NULL;
  qn_status_t status = qn__remote_create(&remote_options, &remote);
  tier->self = remote;
  tier->part_count = remote != NULL;
  return qn__tier_unusable(tier, QN__COUNTER_remote_unusable, "the remote tier", status);
}

static void close(qn__tier_t* tier, int64_t grace_ns) {
  qn__remote_destroy(remote_of(tier), grace_ns);
}

static qn__get_result_t get(qn__tier_t* tier, size_t part, const qn__expectation_t* expected,
                            qn__hit_t* out_hit) {
  (void)part;
  return qn__remote_get(remote_of(tier), expected, INT64_MAX, out_hit);
}

static void release(qn__tier_t* tier, size_t part, qn__hit_t* hit) {
  (void)part;
  qn__remote_hit_release(remote_of(tier), hit);
}

static void put(qn__tier_t* tier, const qn__entry_t* entry, qn__claim_t* claim) {
  if (qn__remote_put(remote_of(tier), entry)) claim->is_held = false;
}

// Claims a key, and polls for the entry while another machine has the claim. A claim is a hint:
// losing it costs only a second compile.
static qn__get_result_t claim(qn__tier_t* tier, const qn__expectation_t* expected,
                              int64_t deadline_ns, qn__claim_t* claim, qn__hit_t* out_hit) {
  qn__remote_t* remote = remote_of(tier);
  int64_t ttl_ms = tier->engine->lock_timeout_ns / NS_PER_MS;
  if (ttl_ms < 1) ttl_ms = 1;
  while (qn__remote_is_being_made(remote, expected->key, ttl_ms, deadline_ns)) {
    int64_t now_ns = qn__now_ns();
    int64_t wake_ns = qn__after(now_ns, CLAIM_POLL_NS);
    if (wake_ns > deadline_ns) wake_ns = deadline_ns;
    if (now_ns >= deadline_ns || !qn__pool_sleep(&tier->engine->pool, wake_ns)) {
      return QN__GET_ABSENT;
    }
    if (get(tier, 0, expected, out_hit) == QN__GET_HIT) return QN__GET_HIT;
  }
  claim->is_held = qn__remote_has_claim(remote, expected->key);
  // The other machine may have put the entry between the last get and this claim.
  return claim->is_held ? get(tier, 0, expected, out_hit) : QN__GET_ABSENT;
}

static void give_back(qn__tier_t* tier, qn_hash128_t key, qn__claim_t* claim) {
  (void)claim;
  qn__remote_give_up(remote_of(tier), key);
}

static bool flush(qn__tier_t* tier, int64_t timeout_ns) {
  return qn__remote_flush(remote_of(tier), timeout_ns);
}

static qn__counter_set_t counters(const qn__tier_t* tier, size_t part) {
  (void)part;
  return qn__remote_counters(remote_of(tier));
}

static void gauges(const qn__tier_t* tier, qn__gauge_values_t* values) {
  qn__remote_t* remote = remote_of(tier);
  qn__gauge_set(values, QN__GAUGE_remote_breaker, qn__remote_breaker(remote, NULL));
  qn__gauge_set(values, QN__GAUGE_remote_writing_off, qn__remote_is_writing_off(remote));
}

static void describe_all(const qn__tier_t* tier, qn__buffer_t* out) {
  qn__buffer_format(out, "'%s'", qn__remote_url(remote_of(tier)));
}

static void describe(const qn__tier_t* tier, size_t part, qn__buffer_t* out) {
  (void)part;
  qn__buffer_cstr(out, "the remote tier ");
  describe_all(tier, out);
}

extern const qn__tier_table_t qn__tier_remote;
const qn__tier_table_t qn__tier_remote = {
    .name = "remote",
    .source = QN_SOURCE_REMOTE,
    .stage = QN__STAGE_remote,
    .hits = QN__COUNTER_remote_answers,
    .rejected = QN__COUNTER_remote_rejected,
    .claimed = QN__COUNTER_remote_answers,
    .is_remote = true,
    .open = open,
    .close = close,
    .get = get,
    .release = release,
    .put = put,
    .claim = claim,
    .give_back = give_back,
    .flush = flush,
    .counters = counters,
    .gauges = gauges,
    .describe = describe,
    .describe_all = describe_all,
};
