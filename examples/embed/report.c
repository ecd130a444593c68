// SPDX-License-Identifier: Apache-2.0
// report.c: the two forms of a report. Read next: embed.c, which fills it in.
#include "report.h"

#include <jansson.h>

static double milliseconds(int64_t time_ns) {
  return (double)time_ns / 1e6;
}

// Returns the sentences per second of the best timed pass.
static double sentence_rate(const report_t* report) {
  return (double)report->sentence_count * 1e9 / (double)report->best_pass_ns;
}

static double all_operations(const report_t* report, const bert_kernels_t* kernels) {
  double sum = 0.0;
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    sum += kernels->all[i].operation_count;
  }
  return report->repeat_count > 0 ? sum / (double)report->repeat_count : 0.0;
}

static const char* reference_text(const report_t* report) {
  return report->is_seeded ? "the network in plain C" : "sentence-transformers";
}

static void print_kernels(const report_t* report, const bert_kernels_t* kernels, FILE* file) {
  const bool is_timed = report->repeat_count > 0;
  fprintf(file, "%-21s%-10s%12s", "kernel", "from", "lookup ms");
  fprintf(file, is_timed ? "%9s%12s%11s\n" : "\n", "calls", "ms a pass", "GFLOP/s");
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    const bert_kernel_t* kernel = &kernels->all[i];
    fprintf(file, "%-21s%-10s%12.3f", kernel->name, qn_source_text(kernel->info.source),
            milliseconds(kernel->info.lookup_ns));
    if (is_timed && kernel->call_ns == 0) {
      // Calls on a GPU return before the work is done: only passes are timed.
      fprintf(file, "%9lld%12s", (long long)(kernel->call_count / report->repeat_count), "-");
    } else if (is_timed) {
      fprintf(file, "%9lld%12.2f", (long long)(kernel->call_count / report->repeat_count),
              milliseconds(kernel->call_ns) / (double)report->repeat_count);
      if (kernel->operation_count > 0.0) {
        fprintf(file, "%11.1f", kernel->operation_count / (double)kernel->call_ns);
      }
    }
    fprintf(file, "\n");
  }
}

void report_print(const report_t* report, const bert_kernels_t* kernels, FILE* file) {
  fprintf(file, "all-MiniLM-L6-v2%s: %lld sentences of %lld to %lld tokens, batches of %lld, %s\n",
          report->is_seeded ? " (SEEDED weights, not the trained ones)" : "",
          (long long)report->sentence_count, (long long)report->shortest,
          (long long)report->longest, (long long)report->batch, report->target);
  fprintf(file,
          "first embedding after %.1f ms: weights %.1f, kernels %.1f, first batch %.1f; "
          "compiler loaded: %s\n\n",
          milliseconds(report->first_embedding_ns), milliseconds(report->weights_ns),
          milliseconds(report->kernels_ns), milliseconds(report->first_batch_ns),
          report->has_compiler_mapped ? "yes" : "no");
  print_kernels(report, kernels, file);
  if (report->repeat_count > 0) {
    fprintf(file, "\nthen %.1f sentences/s (best of %lld passes, %.2f ms, %.1f GFLOP/s)\n",
            sentence_rate(report), (long long)report->repeat_count,
            milliseconds(report->best_pass_ns),
            all_operations(report, kernels) / (double)report->best_pass_ns);
  }
  fprintf(file, "agreement with %s: smallest cosine %.8f, largest difference %.2e: %s\n",
          reference_text(report), report->min_cosine, report->max_difference,
          report->is_good ? "good" : "NOT within 0.9999 and 1e-4");
}

static json_t* kernels_json(const report_t* report, const bert_kernels_t* kernels) {
  json_t* list = json_array();
  for (int i = 0; i < BERT_KERNEL_COUNT; ++i) {
    const bert_kernel_t* kernel = &kernels->all[i];
    const int64_t passes = report->repeat_count > 0 ? report->repeat_count : 1;
    json_array_append_new(
        list,
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "name", kernel->name,
                  "source", qn_source_text(kernel->info.source), "key", kernel->info.key.hex,
                  "parse_ns", (json_int_t)kernel->parse_ns, "lookup_ns",
                  (json_int_t)kernel->info.lookup_ns, "compile_ns",
                  (json_int_t)kernel->info.compile_ns, "load_ns", (json_int_t)kernel->info.load_ns,
                  "calls_per_pass", (json_int_t)(kernel->call_count / passes), "ns_per_pass",
                  (json_int_t)(kernel->call_ns / passes), "operations_per_pass",
                  kernel->operation_count / (double)passes));
  }
  return list;
}

static json_t* batches_json(const report_t* report) {
  json_t* list = json_array();
  for (int64_t first = 0; first < report->sentence_count; first += report->batch) {
    json_array_append_new(list, json_integer((json_int_t)report->batch_ns[first / report->batch]));
  }
  return list;
}

qn_status_t report_print_json(const report_t* report, const bert_kernels_t* kernels, FILE* file) {
  json_t* root = json_pack(
      "{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:s, s:f, s:f, s:b}",
      "model", "all-MiniLM-L6-v2", "target", report->target, "is_seeded", report->is_seeded,
      "sentences", (json_int_t)report->sentence_count, "tokens", (json_int_t)report->token_count,
      "longest", (json_int_t)report->longest, "batch", (json_int_t)report->batch,
      "first_embedding_ns", (json_int_t)report->first_embedding_ns, "weights_ns",
      (json_int_t)report->weights_ns, "kernels_ns", (json_int_t)report->kernels_ns,
      "first_batch_ns", (json_int_t)report->first_batch_ns, "has_compiler_mapped",
      report->has_compiler_mapped, "kernels", kernels_json(report, kernels), "reference",
      reference_text(report), "min_cosine", report->min_cosine, "max_difference",
      report->max_difference, "is_good", report->is_good);
  if (root != NULL && report->repeat_count > 0) {
    json_object_set_new(
        root, "passes",
        json_pack("{s:I, s:I, s:I, s:o, s:f, s:f}", "count", (json_int_t)report->repeat_count,
                  "best_ns", (json_int_t)report->best_pass_ns, "total_ns",
                  (json_int_t)report->total_pass_ns, "batch_ns", batches_json(report),
                  "sentences_per_s", sentence_rate(report), "gflops",
                  all_operations(report, kernels) / (double)report->best_pass_ns));
  }
  if (root == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the report");
  }
  const int failed = json_dumpf(root, file, JSON_INDENT(2));
  json_decref(root);
  if (failed != 0 || fputc('\n', file) == EOF) {
    return qn_status_make(QN_STATUS_IO, "cannot write the report");
  }
  return QN_OK;
}
