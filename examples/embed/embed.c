// embed: runs all-MiniLM-L6-v2 over the golden sentences on quern kernels and compares the
// embeddings with the reference.
//
// It shows the time to a first result with and without a filled cache, the source of each kernel,
// its speed, and that the numbers are right. README.md in this folder says how to run it.
// Single-threaded; the kernels use the CPU pool. Read next: kernels.c (engine, lookup), then
// model.c (calls).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "kernels.h"
#include "model.h"
#include "options.h"
#include "reference.h"
#include "report.h"
#include "weights.h"

// The run: everything that must be released, in the order in which it is made.
typedef struct run {
  const options_t* options;
  golden_t golden;
  weights_t weights;
  kernels_t kernels;
  model_t model;
  int64_t* order;      // the sentences as they are embedded, [count]
  int64_t* ids;        // one batch, its sentences one after another
  int64_t* positions;  // the same
  int64_t* offsets;    // one batch
  float* batch_out;    // one batch
  float* embeddings;   // [sentences, WIDTH], by place in the golden files
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
  const size_t batch = (size_t)report->batch;
  run->order = malloc(count * sizeof *run->order);
  run->ids = malloc(batch * (size_t)golden->longest * sizeof *run->ids);
  run->positions = malloc(batch * (size_t)golden->longest * sizeof *run->positions);
  run->offsets = malloc((batch + 1) * sizeof *run->offsets);
  run->batch_out = malloc(batch * WIDTH * sizeof *run->batch_out);
  run->embeddings = malloc(count * WIDTH * sizeof *run->embeddings);
  report->batch_ns = calloc(count, sizeof *report->batch_ns);
  if (run->order == NULL || run->ids == NULL || run->positions == NULL || run->offsets == NULL ||
      run->batch_out == NULL || run->embeddings == NULL || report->batch_ns == NULL) {
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
  return model_create(&run->weights, &run->kernels, report->batch * report->longest, &run->model);
}

// Embeds the sentences order[first .. first + count).
static qn_status_t embed_batch(run_t* run, int64_t first, int64_t count) {
  const golden_t* golden = &run->golden;
  batch_t batch = {.sentence_count = count,
                   .ids = run->ids,
                   .positions = run->positions,
                   .offsets = run->offsets};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sentence = run->order[first + i];
    const int64_t length = golden->lengths[sentence];
    run->offsets[i] = batch.token_count;
    for (int64_t k = 0; k < length; ++k, ++batch.token_count) {
      run->ids[batch.token_count] = golden->ids[sentence * golden->longest + k];
      run->positions[batch.token_count] = k;
    }
    batch.longest = length > batch.longest ? length : batch.longest;
    batch.square_count += length * length;
  }
  run->offsets[count] = batch.token_count;
  TRY(model_embed(&run->model, &batch, run->batch_out));
  for (int64_t i = 0; i < count; ++i) {
    memcpy(run->embeddings + run->order[first + i] * WIDTH, run->batch_out + i * WIDTH,
           WIDTH * sizeof *run->embeddings);
  }
  return QN_OK;
}

// Embeds all sentences once, and notes the least time that each batch has taken so far.
static qn_status_t embed_all(run_t* run) {
  const int64_t total = run->report.sentence_count;
  const int64_t batch = run->report.batch;
  for (int64_t first = 0; first < total; first += batch) {
    const int64_t start_ns = now_ns();
    TRY(embed_batch(run, first, total - first < batch ? total - first : batch));
    const int64_t batch_ns = now_ns() - start_ns;
    int64_t* least_ns = &run->report.batch_ns[first / batch];
    *least_ns = *least_ns == 0 || batch_ns < *least_ns ? batch_ns : *least_ns;
  }
  return QN_OK;
}

static qn_status_t time_passes(run_t* run) {
  report_t* report = &run->report;
  kernels_reset_counts(&run->kernels);
  report->repeat_count = run->options->repeat;
  for (int64_t i = 0; i < run->options->repeat; ++i) {
    const int64_t start_ns = now_ns();
    TRY(embed_all(run));
    const int64_t pass_ns = now_ns() - start_ns;
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
  report->min_cosine = 1.0;
  for (int64_t i = 0; i < report->sentence_count; ++i) {
    const int64_t sentence = run->order[i];
    const float* ours = run->embeddings + sentence * WIDTH;
    float* theirs = run->golden.embeddings + sentence * WIDTH;
    if (run->options->is_seeded) {
      TRY(reference_embed(&run->weights, run->golden.lengths[sentence],
                          run->golden.ids + sentence * run->golden.longest, theirs));
    }
    double dot = 0.0;
    double our_square = 0.0;
    double their_square = 0.0;
    for (int k = 0; k < WIDTH; ++k) {
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
  TRY(golden_load(options->golden_dir, WIDTH, &run->golden));

  int64_t from_ns = now_ns();
  qn_status_t status =
      weights_load(options->is_seeded ? NULL : options->weights_dir, &run->weights);
  if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    status =
        qn_status_annotate(status, "no weights; run examples/embed/fetch_weights, or use --seeded");
  }
  TRY(status);
  report->weights_ns = now_ns() - from_ns;

  from_ns = now_ns();
  const qn_lookup_options_t lookup = {
      .struct_size = sizeof lookup,
      .tier = options->is_fast_tier ? QN_TIER_FAST : QN_TIER_FULL,
      .is_checked = options->is_checked,
  };
  TRY(kernels_load(options->kernels_dir, options->target, &lookup, &run->kernels));
  report->kernels_ns = now_ns() - from_ns;

  from_ns = now_ns();
  TRY(prepare(run));
  const int64_t pass_ns = now_ns();
  TRY(embed_all(run));
  report->first_batch_ns = pass_ns + report->batch_ns[0] - from_ns;
  report->first_embedding_ns = pass_ns + report->batch_ns[0] - run->start_ns;

  TRY(time_passes(run));
  report->has_compiler_mapped = has_compiler_mapped();
  return compare(run);
}

static void release(run_t* run) {
  model_destroy(&run->model);
  kernels_unload(&run->kernels);
  weights_free(&run->weights);
  golden_free(&run->golden);
  free(run->order);
  free(run->ids);
  free(run->positions);
  free(run->offsets);
  free(run->batch_out);
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
    status = report_print_json(&run.report, &run.kernels, stdout);
  } else if (qn_ok(status)) {
    report_print(&run.report, &run.kernels, stdout);
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
  const int64_t start_ns = now_ns() - ((int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec);

  options_t options;
  int code = EXIT_DONE;
  if (options_parse(argc, argv, &options, &code)) {
    code = run_all(&options, start_ns);
  }
  options_free(&options);
  return code;
}
