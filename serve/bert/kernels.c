// SPDX-License-Identifier: Apache-2.0
// serve/bert/kernels.c: from texts to functions. It is all that a program must do to use quern:
// parse a module, look a function up, call it.
#include "serve/bert/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "quern/adaptive.h"
#include "quern/device.h"
#include "serve/bert/try.h"
#include "serve/clock.h"

// The build makes this table, `texts`, of kernels/*.qn.
#include "bert_kernels.inc"

static const char* const activation_names[] = {
    [BERT_GELU] = "linear_gelu",
    [BERT_GELU_TANH] = "linear_gelu_tanh",
    [BERT_RELU] = "linear_relu",
};
static const char* const pooling_names[] = {
    [BERT_POOLING_MEAN] = "mean_pool",
    [BERT_POOLING_CLS] = "first_pool",
};

// What may be special: the rows of few tokens, with the sizes of the weights.
enum { MAX_SPECIAL_TOKENS = 64 };
static const qn_adaptive_name_t product_names[] = {
    {.name = "n", .min_value = 1, .max_value = MAX_SPECIAL_TOKENS},
    {.name = "k"},
    {.name = "m"},
};
static const qn_adaptive_name_t attention_names[] = {
    {.name = "n", .min_value = 1, .max_value = MAX_SPECIAL_TOKENS},
    {.name = "longest", .min_value = 1, .max_value = MAX_SPECIAL_TOKENS},
    {.name = "h"},
};
static const struct {
  const qn_adaptive_name_t* names;
  size_t count;
} special_names[BERT_KERNEL_COUNT] = {
    [BERT_KERNEL_QUERY_KEY_VALUE] = {product_names, 3},
    [BERT_KERNEL_RESIDUAL_NORM] = {product_names, 3},
    [BERT_KERNEL_ACTIVATION] = {product_names, 3},
    [BERT_KERNEL_ATTENTION] = {attention_names, 3},
};

static void name_all(const bert_config_t* config, bert_kernels_t* kernels) {
  bert_kernel_t* all = kernels->all;
  all[BERT_KERNEL_ENTRANCE].name = "embed_layernorm";
  all[BERT_KERNEL_QUERY_KEY_VALUE].name = "query_key_value";
  all[BERT_KERNEL_ATTENTION].name = "attention";
  all[BERT_KERNEL_RESIDUAL_NORM].name = "linear_residual_norm";
  all[BERT_KERNEL_ACTIVATION].name = activation_names[config->activation];
  all[BERT_KERNEL_POOL].name = pooling_names[config->pooling];
}

static const embedded_text_t* find_text(const char* name) {
  const embedded_text_t* text = texts;
  while (strcmp(text->name, name) != 0) ++text;
  return text;
}

// The lookups of all kernels, which several threads share: one thread runs one compile.
typedef struct bert_lookup {
  bert_kernels_t* kernels;
  qn_engine_t* engine;
  qn_target_t* target;
  const qn_lookup_options_t* options;
  const bert_config_t* config;
  bool is_adaptive;
  atomic_int next;
  qn_status_t statuses[BERT_KERNEL_COUNT];
} bert_lookup_t;

static qn_status_t find_function(const bert_lookup_t* lookup, bert_kernel_id_t id,
                                 qn_module_t* module) {
  bert_kernel_t* kernel = &lookup->kernels->all[id];
  if (!lookup->is_adaptive || special_names[id].count == 0) {
    return qn_engine_function(lookup->engine, module, lookup->target, kernel->name, lookup->options,
                              &kernel->info, &kernel->function);
  }
  const qn_adaptive_options_t options = {.struct_size = sizeof options,
                                         .names = special_names[id].names,
                                         .name_count = special_names[id].count,
                                         .lookup = lookup->options};
  return qn_engine_adaptive_function(lookup->engine, module, lookup->target, kernel->name, &options,
                                     &kernel->info, &kernel->function);
}

static qn_status_t load_kernel(const bert_lookup_t* lookup, bert_kernel_id_t id) {
  bert_kernel_t* kernel = &lookup->kernels->all[id];
  const embedded_text_t* text = find_text(kernel->name);
  const int64_t start_ns = serve_now_ns();
  // The loops over a head have a constant length: the code is faster, and each call is checked.
  char set[32];
  (void)snprintf(set, sizeof set, "d=%lld",
                 (long long)(lookup->config->width / lookup->config->heads));
  char source[64];
  (void)snprintf(source, sizeof source, "%s.qn", kernel->name);
  const qn_parse_options_t parsing = {.struct_size = sizeof parsing,
                                      .source_name = source,
                                      .set = id == BERT_KERNEL_ATTENTION ? set : NULL};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text->data, text->size, &parsing, &module);
  kernel->info.struct_size = sizeof kernel->info;
  kernel->parse_ns = serve_now_ns() - start_ns;
  if (qn_ok(status)) status = find_function(lookup, id, module);
  // The function retains the parts of the module that it needs.
  qn_module_release(module);
  return qn_status_annotate(status, "kernel %s", kernel->name);
}

static void* look_up(void* self) {
  bert_lookup_t* lookup = self;
  int id = 0;
  while ((id = atomic_fetch_add(&lookup->next, 1)) < BERT_KERNEL_COUNT) {
    lookup->statuses[id] = load_kernel(lookup, (bert_kernel_id_t)id);
  }
  return NULL;
}

qn_status_t bert_kernels_load(qn_engine_t* engine, qn_target_t* target,
                              const qn_lookup_options_t* options, bool is_adaptive,
                              const bert_config_t* config, bert_kernels_t* out_kernels) {
  *out_kernels = (bert_kernels_t){.is_timed = false};
  name_all(config, out_kernels);
  bert_lookup_t lookup = {.kernels = out_kernels,
                          .engine = engine,
                          .target = target,
                          .options = options,
                          .config = config,
                          .is_adaptive = is_adaptive};
  pthread_t threads[BERT_KERNEL_COUNT];
  int thread_count = 0;
  // The caller is one of them, and does all the work if no other can be started.
  while (thread_count + 1 < BERT_KERNEL_COUNT && thread_count + 1 < qn_cpu_core_count() &&
         pthread_create(&threads[thread_count], NULL, look_up, &lookup) == 0) {
    ++thread_count;
  }
  look_up(&lookup);
  for (int i = 0; i < thread_count; ++i) pthread_join(threads[i], NULL);
  qn_status_t first = QN_OK;
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    if (qn_ok(first)) {
      first = lookup.statuses[i];
    } else {
      qn_status_free(lookup.statuses[i]);
    }
  }
  if (!qn_ok(first)) bert_kernels_unload(out_kernels);
  return first;
}

void bert_kernels_unload(bert_kernels_t* kernels) {
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    qn_function_release(kernels->all[i].function);
    kernels->all[i].function = NULL;
  }
}

qn_status_t bert_kernels_call(bert_kernels_t* kernels, bert_kernel_id_t id, const qn_value_t* args,
                              size_t count, double operation_count) {
  bert_kernel_t* kernel = &kernels->all[id];
  const int64_t start_ns = serve_now_ns();
  qn_status_t status = qn_function_call(kernel->function, args, count, NULL);
  if (kernels->is_timed) kernel->call_ns += serve_now_ns() - start_ns;
  ++kernel->call_count;
  kernel->operation_count += operation_count;
  return status;
}

void bert_kernels_reset_counts(bert_kernels_t* kernels) {
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    kernels->all[i].call_count = 0;
    kernels->all[i].call_ns = 0;
    kernels->all[i].operation_count = 0.0;
  }
}
