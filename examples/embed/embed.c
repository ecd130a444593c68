// SPDX-License-Identifier: Apache-2.0
// embed: runs all-MiniLM-L6-v2 over the golden sentences on quern kernels and compares the
// embeddings with the reference.
//
// It shows the time to a first result with and without a filled cache, the source of each kernel,
// its speed, and that the numbers are right. README.md in this folder says how to run it.
// The model's code is that of the server: serve/bert. Single-threaded; the kernels use the CPU
// pool. Read next: serve/bert/kernels.c (lookup), then serve/bert/model.c (calls).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "options.h"
#include "report.h"
#include "serve/bert/model.h"
#include "serve/bert/reference.h"
#include "serve/bert/try.h"
#include "serve/clock.h"

// The sizes of all-MiniLM-L6-v2, for made-up weights.
static const bert_config_t minilm = {.layers = 6,
                                     .width = 384,
                                     .heads = 12,
                                     .inner_width = 1536,
                                     .vocabulary = 30522,
                                     .positions = 512,
                                     .token_types = 2,
                                     .norm_epsilon = 1e-12,
                                     .max_tokens = 256};
static const uint64_t seed = 20240229;
static const int64_t flush_ns = 60000000000;

// The run: everything that must be released, in the order in which it is made.
typedef struct run {
  const options_t* options;
  golden_t golden;
  bert_weights_t weights;
  qn_engine_t* engine;
  bert_model_t model;
  serve_batch_t* batch;
  int64_t* order;     // the sentences as they are embedded, [count]
  float* embeddings;  // [sentences, width], by place in the golden files
  int64_t start_ns;
  report_t report;
} run_t;

// Whether a compiler library is mapped. False where /proc cannot be read.
static bool has_compiler_mapped(void) {
  bool is_found = false;
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4352];
  while (maps != NULL && !is_found && fgets(line, sizeof line, maps) != NULL) {
    is_found = strstr(line, "libLLVM") != NULL;
  }
  if (maps != NULL) {
    fclose(maps);
  }
  return is_found;
}

// Orders the sentences and makes the buffers.
static qn_status_t prepare(run_t* run) {
  const golden_t* golden = &run->golden;
  report_t* report = &run->report;
  const options_t* options = run->options;
  report->sentence_count = golden->count;
  if (options->sentence_limit > 0 && options->sentence_limit < golden->count) {
    report->sentence_count = options->sentence_limit;
  }
  report->batch = options->batch < report->sentence_count ? options->batch : report->sentence_count;
  const size_t count = (size_t)golden->count;
  run->order = malloc(count * sizeof *run->order);
  run->embeddings = calloc(count, (size_t)golden->width * sizeof *run->embeddings);
  report->batch_ns = calloc(count, sizeof *report->batch_ns);
  if (run->order == NULL || run->embeddings == NULL || report->batch_ns == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the batches");
  }
  for (int64_t i = 0; i < golden->count; ++i) {
    int64_t at = i;
    for (; options->is_sorted && at > 0 && golden->lengths[run->order[at - 1]] > golden->lengths[i];
         --at) {
      run->order[at] = run->order[at - 1];
    }
    run->order[at] = i;
  }
  for (int64_t i = 0; i < report->sentence_count; ++i) {
    const int64_t length = golden->lengths[run->order[i]];
    report->token_count += length;
    report->shortest = i == 0 || length < report->shortest ? length : report->shortest;
    report->longest = length > report->longest ? length : report->longest;
  }
  return serve_batch_create((size_t)(report->batch * report->longest), (size_t)report->batch,
                            (size_t)golden->width, &run->batch);
}

static void scale_to_unit(float* vector, size_t width) {
  double square = 0.0;
  for (size_t k = 0; k < width; ++k) square += (double)vector[k] * (double)vector[k];
  const double scale = 1.0 / fmax(sqrt(square), 1e-12);
  for (size_t k = 0; k < width; ++k) vector[k] = (float)((double)vector[k] * scale);
}

// Embeds the sentences order[first .. first + count).
static qn_status_t embed_batch(run_t* run, int64_t first, int64_t count) {
  const golden_t* golden = &run->golden;
  serve_batch_t* batch = run->batch;
  serve_batch_clear(batch);
  batch->has_pooled = true;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sentence = run->order[first + i];
    const int64_t length = golden->lengths[sentence];
    for (int64_t k = 0; k < length; ++k, ++batch->token_count) {
      batch->ids[batch->token_count] = golden->ids[sentence * golden->longest + k];
      batch->positions[batch->token_count] = k;
    }
    batch->offsets[++batch->sequence_count] = (int64_t)batch->token_count;
    if ((size_t)length > batch->longest) batch->longest = (size_t)length;
  }
  BERT_TRY(bert_model_run(&run->model, batch));
  const size_t width = (size_t)golden->width;
  for (int64_t i = 0; i < count; ++i) {
    float* vector = run->embeddings + (size_t)run->order[first + i] * width;
    memcpy(vector, batch->pooled + (size_t)i * width, width * sizeof *vector);
    scale_to_unit(vector, width);
  }
  return QN_OK;
}

// Embeds all sentences once, and notes the least time that each batch has taken so far.
static qn_status_t embed_all(run_t* run) {
  const int64_t total = run->report.sentence_count;
  const int64_t batch = run->report.batch;
  for (int64_t first = 0; first < total; first += batch) {
    const int64_t start_ns = serve_now_ns();
    BERT_TRY(embed_batch(run, first, total - first < batch ? total - first : batch));
    const int64_t batch_ns = serve_now_ns() - start_ns;
    int64_t* least_ns = &run->report.batch_ns[first / batch];
    *least_ns = *least_ns == 0 || batch_ns < *least_ns ? batch_ns : *least_ns;
  }
  return QN_OK;
}

static qn_status_t time_passes(run_t* run) {
  report_t* report = &run->report;
  bert_kernels_reset_counts(&run->model.kernels);
  report->repeat_count = run->options->repeat;
  for (int64_t i = 0; i < run->options->repeat; ++i) {
    const int64_t start_ns = serve_now_ns();
    BERT_TRY(embed_all(run));
    const int64_t pass_ns = serve_now_ns() - start_ns;
    report->total_pass_ns += pass_ns;
    if (i == 0 || pass_ns < report->best_pass_ns) {
      report->best_pass_ns = pass_ns;
    }
  }
  return QN_OK;
}

// Fills in the agreement over all sentences that were embedded.
static qn_status_t compare(run_t* run) {
  report_t* report = &run->report;
  const int64_t width = run->golden.width;
  report->min_cosine = 1.0;
  for (int64_t i = 0; i < report->sentence_count; ++i) {
    const int64_t sentence = run->order[i];
    const float* ours = run->embeddings + sentence * width;
    float* theirs = run->golden.embeddings + sentence * width;
    if (run->options->is_seeded) {
      BERT_TRY(bert_reference(&run->weights, run->golden.lengths[sentence],
                              run->golden.ids + sentence * run->golden.longest, theirs));
      scale_to_unit(theirs, (size_t)width);
    }
    double dot = 0.0;
    double our_square = 0.0;
    double their_square = 0.0;
    for (int64_t k = 0; k < width; ++k) {
      dot += (double)ours[k] * (double)theirs[k];
      our_square += (double)ours[k] * (double)ours[k];
      their_square += (double)theirs[k] * (double)theirs[k];
      report->max_difference =
          fmax(report->max_difference, fabs((double)ours[k] - (double)theirs[k]));
    }
    const double cosine = dot / sqrt(our_square * their_square);
    if (!isfinite(cosine)) {
      return qn_status_make(QN_STATUS_VALUE_ERROR,
                            "the embedding of sentence %lld is not finite or zero",
                            (long long)sentence + 1);
    }
    report->min_cosine = fmin(report->min_cosine, cosine);
  }
  report->is_good = report->min_cosine > COSINE_BOUND && report->max_difference < DIFFERENCE_BOUND;
  return QN_OK;
}

static qn_status_t execute(run_t* run) {
  const options_t* options = run->options;
  report_t* report = &run->report;
  int64_t from_ns = serve_now_ns();
  bert_config_t config = minilm;
  if (options->is_seeded) {
    BERT_TRY(bert_weights_seed(&config, seed, &run->weights));
  } else {
    qn_status_t status = bert_config_read(options->weights_dir, &config);
    if (qn_ok(status)) status = bert_weights_load(options->weights_dir, &config, &run->weights);
    if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
      status = qn_status_annotate(status,
                                  "no weights; run examples/embed/fetch_weights, or use --seeded");
    }
    BERT_TRY(status);
  }
  report->weights_ns = serve_now_ns() - from_ns;
  BERT_TRY(golden_load(options->golden_dir, config.width, &run->golden));
  BERT_TRY(prepare(run));

  from_ns = serve_now_ns();
  const qn_lookup_options_t lookup = {
      .struct_size = sizeof lookup,
      .tier = options->is_fast_tier ? QN_TIER_FAST : QN_TIER_FULL,
      .is_checked = options->is_checked,
  };
  BERT_TRY(qn_engine_create(NULL, &run->engine));
  const bert_model_options_t model = {.engine = run->engine,
                                      .target = options->target,
                                      .lookup = &lookup,
                                      .max_tokens = run->batch->max_tokens,
                                      .max_sequences = run->batch->max_sequences};
  BERT_TRY(bert_model_open(&model, &run->weights, &run->model));
  report->kernels_ns = serve_now_ns() - from_ns;

  const int64_t pass_ns = serve_now_ns();
  BERT_TRY(embed_all(run));
  report->first_batch_ns = report->batch_ns[0];
  report->first_embedding_ns = pass_ns + report->batch_ns[0] - run->start_ns;

  BERT_TRY(time_passes(run));
  report->has_compiler_mapped = has_compiler_mapped();
  return compare(run);
}

static void release(run_t* run) {
  bert_model_close(&run->model);
  bert_weights_free(&run->weights);
  // qn_engine_destroy alone would not wait for a slow disk; the next run needs these entries.
  if (run->engine != NULL) (void)qn_engine_flush(run->engine, flush_ns);
  qn_engine_destroy(run->engine);
  golden_free(&run->golden);
  serve_batch_destroy(run->batch);
  free(run->order);
  free(run->embeddings);
  free(run->report.batch_ns);
}

static int exit_code(qn_status_t status) {
  switch (qn_status_code(status)) {
    case QN_STATUS_UNAVAILABLE:
    case QN_STATUS_INCOMPATIBLE:
    case QN_STATUS_OUT_OF_MEMORY:
    case QN_STATUS_DEVICE_ERROR:
      return EXIT_MACHINE;
    default:
      return EXIT_WRONG;
  }
}

static int run_all(const options_t* options, int64_t start_ns) {
  run_t run = {.options = options, .start_ns = start_ns};
  run.report = (report_t){.target = options->target, .is_seeded = options->is_seeded};
  qn_status_t status = execute(&run);
  if (qn_ok(status) && options->is_json) {
    status = report_print_json(&run.report, &run.model.kernels, stdout);
  } else if (qn_ok(status)) {
    report_print(&run.report, &run.model.kernels, stdout);
  }
  int code = run.report.is_good ? EXIT_DONE : EXIT_WRONG;
  if (!qn_ok(status)) {
    fprintf(stderr, "embed: %s: %s\n", qn_status_code_text(qn_status_code(status)),
            qn_status_message(status));
    code = exit_code(status);
    qn_status_free(status);
  }
  release(&run);
  return code;
}

int main(int argc, char** argv) {
  // The process began before main: the processor time spent so far is that of exec and the dynamic
  // linker, which nothing interrupts for long.
  struct timespec spent = {0, 0};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  const int64_t start_ns = serve_now_ns() - ((int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec);

  options_t options;
  int code = EXIT_DONE;
  if (options_parse(argc, argv, &options, &code)) {
    code = run_all(&options, start_ns);
  }
  options_free(&options);
  return code;
}
