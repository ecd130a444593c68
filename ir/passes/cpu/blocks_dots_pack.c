// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_dots_pack.c: packs words of some steps (blocks_dots.h).
#include "ir/passes/cpu/blocks_dots.h"
#include "ir/tiles.h"

// ---- expressions

// Returns an operand's value as an i32 whose lower bits are the number; of a bf16 the upper bits.
static qn__ir_expr_t* bits_of(const qn__blocks_writer_t* w, qn__ir_expr_t* value) {
  if (!value || value->dtype == QN_DTYPE_I32) return value;
  assert(value->dtype == QN_DTYPE_F32);
  return qn__blocks_dot_convert(w, QN__EXPR_BITCAST, QN_DTYPE_I32, value);
}

// Returns the word that holds `value` as its number `index`, and nothing else.
static qn__ir_expr_t* in_word(const qn__blocks_writer_t* w, qn__ir_expr_t* value, int64_t index) {
  int64_t bits = 32 / w->shape->dot.group;
  qn__ir_expr_t* word = bits_of(w, value);
  if (w->product->reduce->dtype == QN_DTYPE_F32) {
    if (index == 1) return qn__blocks_dot_op(w, QN_OP_AND, word, -65536);
    word = qn__blocks_dot_op(w, QN_OP_SHR, word, 16);
  }
  if (index < w->shape->dot.group - 1)
    word = qn__blocks_dot_op(w, QN_OP_AND, word, (1 << bits) - 1);
  return index > 0 ? qn__blocks_dot_op(w, QN_OP_SHL, word, index * bits) : word;
}

qn_dtype_t qn__blocks_dot_dtype(const qn__blocks_writer_t* w, bool is_along) {
  if (!is_along) return QN_DTYPE_I32;
  return w->shape->dot.group == 4 ? QN_DTYPE_I8 : QN_DTYPE_I16;
}

qn__ir_expr_t* qn__blocks_dot_number(const qn__blocks_writer_t* w, qn__ir_expr_t* value) {
  const qn__blocks_dot_t* dot = &w->shape->dot;
  value = bits_of(w, value);
  if (w->product->reduce->dtype == QN_DTYPE_F32) value = qn__blocks_dot_op(w, QN_OP_SHR, value, 16);
  value = qn__blocks_dot_convert(w, QN__EXPR_CAST, qn__blocks_dot_dtype(w, true), value);
  return dot->moves_rows ? qn__blocks_dot_op(w, QN_OP_XOR, value, INT8_MIN) : value;
}

qn__ir_expr_t* qn__blocks_dot_words(const qn__blocks_writer_t* w, const qn__ir_expr_t* steps) {
  return qn__pb_op_int(w->pb, QN_OP_CEILDIV, qn__pb_copy(w->pb, steps), w->shape->dot.group);
}

qn__ir_expr_t* qn__blocks_dot_padded(const qn__blocks_writer_t* w, const qn__ir_expr_t* steps) {
  if (!w->shape->dot.has_tiles) return qn__blocks_dot_words(w, steps);
  int64_t tile_steps = QN__TILE_WORDS * w->shape->dot.group;
  qn__ir_expr_t* tiles = qn__pb_op_int(w->pb, QN_OP_CEILDIV, qn__pb_copy(w->pb, steps), tile_steps);
  return qn__pb_op_int(w->pb, QN_OP_MUL, tiles, QN__TILE_WORDS);
}

qn__ir_expr_t* qn__blocks_dot_row(const qn__blocks_writer_t* w, uint32_t o, qn__ir_expr_t* line,
                                  qn__ir_expr_t* word) {
  if (!w->product->operands[o].runs_along_step) {
    return qn__pb_load(w->pb, w->packed[o], word, line);
  }
  word = qn__pb_op_int(w->pb, QN_OP_MUL, word, w->shape->dot.group);
  qn__ir_expr_t* load = qn__pb_load(w->pb, w->packed[o], line, word);
  if (load) load->dtype = QN_DTYPE_I32;
  return load;
}

qn__ir_expr_t* qn__blocks_dot_add(const qn__blocks_writer_t* w, int op, qn__ir_expr_t* sum,
                                  qn__ir_expr_t* row, qn__ir_expr_t* column) {
  bool takes_column = w->shape->dot.takes_column;
  return qn__expr_op(w->pb->arena, (qn_op_t)op, sum, takes_column ? column : row,
                     takes_column ? row : column);
}

qn__ir_expr_t* qn__blocks_dot_place(const qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                                    qn__ir_expr_t* word) {
  if (panel->side == QN__PRODUCT_ROW) return word;
  qn__ir_expr_t* base =
      qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_copy(w->pb, panel->number), w->shape->words);
  return qn__pb_op(w->pb, QN_OP_ADD, base, word);
}

qn__ir_expr_t* qn__blocks_dot_lines(const qn__blocks_writer_t* w, const qn__blocks_panel_t* panel) {
  qn__ir_expr_t* left = qn__pb_op(w->pb, QN_OP_SUB, qn__pb_copy(w->pb, w->count[panel->side]),
                                  qn__pb_copy(w->pb, panel->line));
  return qn__pb_op_int(w->pb, QN_OP_MIN, left, panel->lines);
}

qn__ir_expr_t* qn__blocks_dot_packed(const qn__blocks_writer_t* w,
                                     const qn__blocks_panel_t* panel) {
  bool is_short = w->shape->dot.has_tiles && panel->side == QN__PRODUCT_ROW;
  return is_short ? qn__blocks_dot_lines(w, panel) : qn__pb_int(w->pb, panel->lines);
}

qn__ir_stmt_t* qn__blocks_dot_panels(qn__blocks_writer_t* w, qn__ir_expr_t* panels,
                                     qn__blocks_panel_t* out) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* across =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "panel", qn__pb_copy(w->pb, panels));
  if (!across) return NULL;
  *out = (qn__blocks_panel_t){.side = QN__PRODUCT_COLUMN,
                              .number = qn__pb_use(pb, across->loop.var),
                              .lines = w->shape->width};
  out->line = qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_copy(w->pb, out->number), w->shape->width);
  return across;
}

// ---- packing words

enum { run_words = 64 };  // packed one line after the other: the first cache holds their places

// A loop over words, and the values that they have.
typedef struct word_loop {
  qn__ir_stmt_t* loop;
  qn__ir_expr_t* steps[4];  // values of the reduction's variable
  qn__ir_expr_t* mask;      // of the steps that exist; NULL: of all
} word_loop_t;

// Makes a loop over the words [from, to). In the last word, steps beyond the end are clamped if
// `is_tail`; only then there may be such.
static bool open_words(qn__blocks_writer_t* w, const qn__blocks_steps_t* steps, qn__ir_expr_t* from,
                       qn__ir_expr_t* to, bool is_tail, word_loop_t* out) {
  qn__pass_builder_t* pb = w->pb;
  int64_t group = w->shape->dot.group;
  assert(group <= (int64_t)QN_COUNT_OF(out->steps));
  qn__ir_var_t* q = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "q");
  *out = (word_loop_t){.loop = qn__pb_loop(pb, QN_LOOP_SERIAL, q, from, to)};
  if (!out->loop) return false;
  qn__ir_block_t* body = &out->loop->loop.body;
  qn__ir_expr_t* first =
      qn__pb_named(pb, body, "first", qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_use(pb, q), group));
  for (int64_t g = 0; g < group; ++g) {
    qn__ir_expr_t* step = qn__blocks_dot_op(w, QN_OP_ADD, qn__pb_copy(w->pb, first), g);
    if (is_tail) {
      step = qn__pb_op(pb, QN_OP_MIN, step,
                       qn__blocks_dot_op(w, QN_OP_ADD, qn__pb_copy(w->pb, steps->count), -1));
    }
    step = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(w->pb, steps->first), step);
    qn__product_set_step(w->product, body, step);
    out->steps[g] = w->product->names[w->product->steps[0].name].now;
  }
  if (is_tail) {
    qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, qn__pb_copy(w->pb, steps->count), first);
    left = qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_op_int(pb, QN_OP_MIN, left, group), 32 / group);
    qn__ir_expr_t* mask = qn__pb_op(pb, QN_OP_SHL, qn__pb_int(pb, 1), left);
    mask = qn__blocks_dot_convert(w, QN__EXPR_CAST, QN_DTYPE_I32,
                                  qn__blocks_dot_op(w, QN_OP_ADD, mask, -1));
    out->mask = qn__pb_named(pb, body, "mask", mask);
  }
  return !qn__pb_stopped(pb);
}

// Appends the store of a word of line `line` of a panel.
static void write_word(qn__blocks_writer_t* w, qn__ir_block_t* body,
                       const qn__blocks_panel_t* panel, uint32_t o, const word_loop_t* words,
                       qn__ir_var_t* line) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* operand = &product->operands[o];
  qn__ir_expr_t* word = NULL;
  for (int64_t g = 0; g < w->shape->dot.group; ++g) {
    product->names[product->steps[0].name].now = words->steps[g];
    qn__product_write_lets(product, body, operand->is_needed,
                           product->side_dims[panel->side] | QN__PRODUCT_STEP, 0);
    qn__ir_expr_t* part = in_word(w, qn__product_copy(product, operand->value), g);
    word = word ? qn__pb_op(pb, QN_OP_OR, word, part) : part;
  }
  if (panel->side == QN__PRODUCT_ROW && w->shape->dot.moves_rows) {
    word = qn__blocks_dot_op(w, QN_OP_XOR, word, qn__blocks_dot_zeros);
  }
  if (words->mask) word = qn__pb_op(pb, QN_OP_AND, word, qn__pb_copy(w->pb, words->mask));
  qn__ir_expr_t* at = qn__blocks_dot_place(w, panel, qn__pb_use(pb, words->loop->loop.var));
  qn__pb_append(body, qn__pb_store(pb, w->packed[o], at, qn__pb_use(pb, line), word));
}

// Appends the words of all lines of a panel, for the word of the loop `words`. A whole panel has a
// constant number of lines. Of other columns, those beyond the edge stay as they are: nothing
// stores their sums.
static void write_across(qn__blocks_writer_t* w, qn__ir_block_t* out,
                         const qn__blocks_panel_t* panel, uint32_t o, const word_loop_t* words) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* end =
      qn__blocks_dot_op(w, QN_OP_ADD, qn__pb_copy(w->pb, panel->line), panel->lines);
  qn__ir_expr_t* is_whole = qn__pb_op(pb, QN_OP_LE, end, qn__pb_copy(w->pb, w->count[panel->side]));
  qn__ir_stmt_t* test = qn__pb_if(pb, is_whole, (qn__ir_block_t){NULL, NULL});
  for (int is_edge = 0; is_edge < 2 && test; ++is_edge) {
    bool is_row = panel->side == QN__PRODUCT_ROW;
    qn__ir_stmt_t* lines = qn__blocks_lines(w, panel, QN_LOOP_PARALLEL, is_edge && is_row);
    if (!lines) return;
    if (is_edge && !is_row) lines->loop.end = qn__blocks_dot_lines(w, panel);
    if (!lines->loop.end) return;
    write_word(w, &lines->loop.body, panel, o, words, lines->loop.var);
    qn__block_append(is_edge ? &test->if_.else_block : &test->if_.then_block, lines);
  }
  qn__pb_append(out, test);
}

// Appends the words [from, to) of a panel whose operand is contiguous along the steps. LLVM joins
// the loads of a word where no step is clamped. Vectors across the lines would gather bytes.
static void write_words(qn__blocks_writer_t* w, qn__ir_block_t* out,
                        const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                        uint32_t o, qn__ir_expr_t* from, qn__ir_expr_t* to, bool is_tail) {
  qn__ir_stmt_t* lines = qn__blocks_lines(w, panel, QN_LOOP_SERIAL, true);
  word_loop_t words;
  if (!lines || !open_words(w, steps, from, to, is_tail, &words)) return;
  lines->loop.is_rare = words.loop->loop.is_rare = w->shape->dot.group == 4;
  write_word(w, &words.loop->loop.body, panel, o, &words, lines->loop.var);
  qn__block_append(&lines->loop.body, words.loop);
  qn__block_append(out, lines);
}

// Returns the load whose numbers fill the words of an operand as they are in memory; NULL: the
// value is another one.
static const qn__ir_expr_t* load_of(const qn__product_operand_t* operand) {
  const qn__ir_expr_t* value = operand->value;
  if (value->kind != QN__EXPR_CAST || value->args[0]->kind != QN__EXPR_LOAD) return NULL;
  qn_dtype_t dtype = value->args[0]->dtype;
  bool is_float = value->dtype == QN_DTYPE_F32;
  bool is_word = is_float ? dtype == QN_DTYPE_BF16 : qn_dtype_size_bytes(dtype) == 1;
  return is_word && (is_float || qn__dtype_is_int(dtype)) ? value->args[0] : NULL;
}

bool qn__blocks_dot_has_squares(const qn__blocks_writer_t* w, uint32_t o) {
  const qn__product_operand_t* operand = &w->product->operands[o];
  return w->shape->dot.has_tiles && operand->side == QN__PRODUCT_COLUMN &&
         operand->runs_along_step && !w->pb->options->is_checked && load_of(operand);
}

// Appends the words of `squares` squares of a panel: of some lines at the same number of words,
// which are transposed in registers.
static void write_squares(qn__blocks_writer_t* w, qn__ir_block_t* out,
                          const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                          uint32_t o, qn__ir_expr_t* squares, int64_t size) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* operand = &product->operands[o];
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "square", squares);
  qn__ir_stmt_t* across =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "group", qn__pb_int(pb, panel->lines / size));
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "line", qn__pb_int(pb, size));
  qn__ir_stmt_t* words = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "q", qn__pb_int(pb, size));
  if (!down || !across || !lines || !words) return;
  lines->loop.is_transposed = true;
  qn__blocks_write_line_table(w, out, panel);
  qn__ir_expr_t* line = qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_use(pb, across->loop.var), size);
  line = qn__pb_op(pb, QN_OP_ADD, line, qn__pb_use(pb, lines->loop.var));
  qn__ir_var_t* at =
      qn__pb_let(pb, &lines->loop.body, "at",
                 qn__pb_load(pb, w->line_of, qn__pb_int(pb, 0), qn__pb_copy(pb, line)));
  if (!at) return;
  qn__product_place(product, &lines->loop.body, product->side_dims[panel->side], at);
  qn__ir_expr_t* word = qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_use(pb, down->loop.var), size);
  word = qn__pb_op(pb, QN_OP_ADD, word, qn__pb_use(pb, words->loop.var));
  qn__ir_expr_t* step = qn__blocks_dot_op(w, QN_OP_MUL, qn__pb_copy(pb, word), w->shape->dot.group);
  qn__ir_block_t* body = &words->loop.body;
  qn__product_set_step(product, body,
                       qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, steps->first), step));
  qn__product_write_lets(product, body, operand->is_needed,
                         product->side_dims[panel->side] | QN__PRODUCT_STEP, 0);
  qn__ir_expr_t* load = qn__product_copy(product, load_of(operand));
  if (!load) return;
  load->dtype = QN_DTYPE_I32;
  qn__pb_append(body,
                qn__pb_store(pb, w->packed[o], qn__blocks_dot_place(w, panel, word), line, load));
  qn__block_append(&lines->loop.body, words);
  qn__block_append(&across->loop.body, lines);
  qn__block_append(&down->loop.body, across);
  qn__block_append(out, down);
}

// Appends all words of such a panel: some of each line, whose places the first cache holds.
static void write_along(qn__blocks_writer_t* w, qn__ir_block_t* out,
                        const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                        uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* whole =
      qn__blocks_dot_op(w, QN_OP_FLOORDIV, qn__pb_copy(w->pb, steps->count), w->shape->dot.group);
  whole = qn__pb_named(pb, out, "whole", whole);
  if (qn__blocks_dot_has_squares(w, o)) {
    int64_t size = pb->options->vector_bytes / 4;
    qn__ir_expr_t* squares = qn__pb_named(
        pb, out, "squares", qn__blocks_dot_op(w, QN_OP_FLOORDIV, qn__pb_copy(pb, whole), size));
    write_squares(w, out, panel, steps, o, qn__pb_copy(pb, squares), size);
    write_words(w, out, panel, steps, o, qn__blocks_dot_op(w, QN_OP_MUL, squares, size),
                qn__blocks_dot_words(w, steps->count), true);
    return;
  }
  qn__ir_stmt_t* runs =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "run",
                        qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_copy(pb, whole), run_words));
  if (!runs) return;
  qn__ir_expr_t* from =
      qn__pb_named(pb, &runs->loop.body, "from",
                   qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, runs->loop.var), run_words));
  qn__ir_expr_t* to = qn__pb_op(pb, QN_OP_MIN, qn__pb_copy(pb, whole),
                                qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, from), run_words));
  write_words(w, &runs->loop.body, panel, steps, o, from, to, false);
  qn__block_append(out, runs);
  write_words(w, out, panel, steps, o, qn__pb_copy(pb, whole),
              qn__blocks_dot_words(w, steps->count), true);
}

// Appends words of 0 after the last one of each panel of columns, which tiles read.
static void write_words_beyond(qn__blocks_writer_t* w, qn__ir_block_t* out,
                               const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                               uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_var_t* q = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "q");
  qn__ir_stmt_t* words = qn__pb_loop(pb, QN_LOOP_SERIAL, q, qn__blocks_dot_words(w, steps->count),
                                     qn__blocks_dot_padded(w, steps->count));
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, panel->lines));
  if (!words || !lines) return;
  qn__pb_append(&lines->loop.body,
                qn__pb_store(pb, w->packed[o], qn__blocks_dot_place(w, panel, qn__pb_use(pb, q)),
                             qn__pb_use(pb, lines->loop.var), qn__pb_zero(pb, QN_DTYPE_I32)));
  qn__block_append(&words->loop.body, lines);
  qn__block_append(out, words);
}

void qn__blocks_dot_pack(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                         qn__ir_expr_t* panels, const qn__blocks_steps_t* steps, uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  bool is_along = w->product->operands[o].runs_along_step;
  word_loop_t words = {.loop = NULL};
  if (!is_along && !open_words(w, steps, qn__pb_int(pb, 0), qn__blocks_dot_words(w, steps->count),
                               true, &words)) {
    return;
  }
  qn__ir_block_t* body = words.loop ? &words.loop->loop.body : out;
  qn__blocks_panel_t panel = {.side = QN__PRODUCT_ROW, .line = row, .lines = w->shape->height};
  qn__ir_stmt_t* across = NULL;
  if (!row) {
    across = qn__blocks_dot_panels(w, panels, &panel);
    if (!across) return;
  }
  qn__ir_block_t* inner = across ? &across->loop.body : body;
  if (is_along) {
    write_along(w, inner, &panel, steps, o);
  } else {
    write_across(w, inner, &panel, o, &words);
  }
  if (across) qn__block_append(body, across);
  if (words.loop) qn__block_append(out, words.loop);
  if (!w->shape->dot.has_tiles) return;
  across = qn__blocks_dot_panels(w, panels, &panel);
  if (!across) return;
  write_words_beyond(w, &across->loop.body, &panel, steps, o);
  qn__block_append(out, across);
}

void qn__blocks_dot_pad(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                        const qn__blocks_steps_t* steps, uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  bool has_tiles = w->shape->dot.has_tiles;
  const qn__blocks_panel_t panel = {QN__PRODUCT_ROW, row, w->shape->height, NULL};
  qn__ir_stmt_t* lines =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "line", qn__blocks_dot_packed(w, &panel));
  qn__ir_var_t* p = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "p");
  qn__ir_expr_t* end =
      qn__blocks_dot_op(w, QN_OP_MUL, qn__blocks_dot_padded(w, steps->count), w->shape->dot.group);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, has_tiles ? QN_LOOP_PARALLEL : QN_LOOP_SERIAL, p,
                                    qn__pb_copy(w->pb, steps->count), end);
  if (!lines || !loop) return;
  qn__pb_append(&loop->loop.body,
                qn__pb_store(pb, w->packed[o], qn__pb_use(pb, lines->loop.var), qn__pb_use(pb, p),
                             qn__pb_zero(pb, w->packed[o]->dtype)));
  qn__block_append(&lines->loop.body, loop);
  qn__block_append(out, lines);
}
