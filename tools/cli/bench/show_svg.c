// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/show_svg.c: the results as one SVG document: times as bars on a logarithmic axis,
// with whiskers from the smallest to the 99th of a hundred, and the roofline with a mark for each
// call.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/bench/show.h"
#include "tools/cli/output.h"

// Pixels.
#define WIDTH 900.0
#define LEFT 330.0
#define RIGHT 40.0
#define BAR 22.0
#define TOP 60.0
#define PLOT_HEIGHT 320.0

typedef struct drawing {
  text_t* text;
  qn_status_t status;
} drawing_t;

static void draw(drawing_t* d, const char* format, ...) QN_PRINTF(2, 3);
static void draw(drawing_t* d, const char* format, ...) {
  char line[2048];
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (size < 0 || !qn_ok(d->status)) return;
  d->status =
      text_append(d->text, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

// Draws text that comes from outside; "..." where it is too long for a drawing.
static void draw_text(drawing_t* d, double x, double y, const char* anchor, const char* text) {
  char shown[256], escaped[sizeof shown * 5];
  size_t used = 0;
  // No control characters and no bytes that are not UTF-8.
  if (qn_text_escape(text, strlen(text), false, shown, sizeof shown) >= sizeof shown) {
    memcpy(shown, "...", 4);
  }
  for (const char* at = shown; *at; at++) {
    const char* entity = *at == '<' ? "&lt;" : *at == '>' ? "&gt;" : *at == '&' ? "&amp;" : NULL;
    if (entity) {
      used += (size_t)snprintf(escaped + used, sizeof escaped - used, "%s", entity);
    } else {
      escaped[used++] = *at;
    }
  }
  escaped[used] = '\0';
  draw(d, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, escaped);
}

static double number_of(const json_t* record, const char* name) {
  return json_number_value(json_object_get(record, name));
}

static const char* text_of(const json_t* record, const char* name) {
  const char* text = json_string_value(json_object_get(record, name));
  return text ? text : "";
}

// A logarithmic axis over whole decades.
typedef struct axis {
  double low, high;  // decades
  double from, to;   // pixels
} axis_t;

static double place(const axis_t* axis, double value) {
  double part = (log10(value > 0 ? value : 1e-9) - axis->low) / (axis->high - axis->low);
  return axis->from + (part < 0 ? 0 : part > 1 ? 1 : part) * (axis->to - axis->from);
}

static axis_t axis_over(double least, double most, double from, double to) {
  axis_t axis = {floor(log10(least > 0 ? least : 1e-9)), ceil(log10(most > 0 ? most : 1)), from,
                 to};
  if (axis.high <= axis.low) axis.high = axis.low + 1;
  return axis;
}

static void label_row(const json_t* row, char out[256]) {
  const json_t* threads = json_object_get(row, "threads");
  int size = snprintf(out, 256, "%.20s, %.60s, %.10s", text_of(row, "what"), text_of(row, "target"),
                      text_of(row, "tier"));
  if (json_is_integer(threads)) {
    size +=
        snprintf(out + size, 256 - (size_t)size, ", %d threads", (int)json_integer_value(threads));
  }
  if (strcmp(text_of(row, "what"), "call") == 0 && text_of(row, "sizes")[0]) {
    (void)snprintf(out + size, 256 - (size_t)size, ", %.60s", text_of(row, "sizes"));
  }
}

// ------------------------------------------------------------------------------------ bars

static double draw_bars(drawing_t* d, const json_t* rows, double top) {
  size_t count = json_array_size(rows);
  double least = INFINITY, most = 0;
  for (size_t i = 0; i < count; i++) {
    const json_t* row = json_array_get(rows, i);
    least = fmin(least, number_of(row, "min_ns"));
    most = fmax(most, number_of(row, "p99_ns"));
  }
  if (count == 0) return top;
  axis_t axis = axis_over(least, most, LEFT, WIDTH - RIGHT);
  double bottom = top + (double)count * BAR;
  for (double decade = axis.low; decade <= axis.high; decade++) {
    double x = place(&axis, pow(10, decade));
    char text[32];
    draw(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", x, top, x,
         bottom);
    draw_text(d, x, bottom + 16, "middle", format_ns((int64_t)pow(10, decade), text));
  }
  for (size_t i = 0; i < count; i++) {
    const json_t* row = json_array_get(rows, i);
    double y = top + (double)i * BAR, x = place(&axis, number_of(row, "median_ns"));
    double low = place(&axis, number_of(row, "min_ns")),
           high = place(&axis, number_of(row, "p99_ns")), middle = y + BAR / 2;
    char text[256], time[32];
    label_row(row, text);
    draw_text(d, LEFT - 8, middle + 4, "end", text);
    draw(d, "<rect x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" class=\"%s\"/>\n", LEFT,
         y + 3, x - LEFT, BAR - 6, strcmp(text_of(row, "what"), "call") == 0 ? "call" : "wait");
    draw(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"whisker\"/>\n", low,
         middle, high, middle);
    draw_text(d, LEFT + 4, middle + 4, "start",
              format_ns((int64_t)number_of(row, "median_ns"), time));
  }
  return bottom + 40;
}

// ------------------------------------------------------------------------------------ roofline

static void draw_roof(drawing_t* d, const json_t* roof, const axis_t* x, const axis_t* y) {
  double peak = number_of(roof, "gops");
  const json_t* levels = json_object_get(roof, "levels");
  double left = pow(10, x->low), right = pow(10, x->high), knee = left;
  for (size_t i = 0; i < json_array_size(levels); i++) {
    const json_t* level = json_array_get(levels, i);
    double bandwidth = fmax(number_of(level, "load_gbs"), number_of(level, "update_gbs"));
    if (bandwidth <= 0) continue;
    double end = fmin(peak / bandwidth, right), low = fmax(left, pow(10, y->low) / bandwidth);
    if (low >= end) continue;
    knee = knee == left ? end : fmin(knee, end);
    draw(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"roof\"/>\n",
         place(x, low), place(y, low * bandwidth), place(x, end), place(y, end * bandwidth));
    draw_text(d, place(x, low) + 4, place(y, low * bandwidth) - 4, "start", text_of(level, "name"));
  }
  draw(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"roof\"/>\n",
       place(x, knee), place(y, peak), place(x, right), place(y, peak));
  char text[128];
  (void)snprintf(text, sizeof text, "%s, %d threads: %.3g Gop/s", text_of(roof, "dtype"),
                 (int)number_of(roof, "threads"), peak);
  draw_text(d, place(x, right) - 4, place(y, peak) - 4, "end", text);
}

static double draw_roofline(drawing_t* d, const json_t* roofs, const json_t* rows, double top) {
  double most = 1, least = INFINITY;
  for (size_t i = 0; i < json_array_size(roofs); i++) {
    most = fmax(most, number_of(json_array_get(roofs, i), "gops"));
  }
  for (size_t i = 0; i < json_array_size(rows); i++) {
    double gops = number_of(json_array_get(rows, i), "gops");
    if (gops > 0) least = fmin(least, gops);
    most = fmax(most, gops);
  }
  if (json_array_size(roofs) == 0 || isinf(least)) return top;
  axis_t x = axis_over(0.01, 1000, 80, WIDTH - RIGHT);
  axis_t y = axis_over(fmin(least, most / 100), most, top + PLOT_HEIGHT, top + 20);
  for (double decade = x.low; decade <= x.high; decade++) {
    double at = place(&x, pow(10, decade));
    char text[32];
    (void)snprintf(text, sizeof text, "%g", pow(10, decade));
    draw(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", at, y.to,
         at, y.from);
    draw_text(d, at, y.from + 16, "middle", text);
  }
  for (double decade = y.low; decade <= y.high; decade++) {
    double at = place(&y, pow(10, decade));
    char text[32];
    (void)snprintf(text, sizeof text, "%g", pow(10, decade));
    draw(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", x.from, at,
         x.to, at);
    draw_text(d, x.from - 8, at + 4, "end", text);
  }
  draw_text(d, (x.from + x.to) / 2, y.from + 34, "middle", "operations per byte moved");
  draw_text(d, 10, top + 10, "start", "Gop/s");
  for (size_t i = 0; i < json_array_size(roofs); i++)
    draw_roof(d, json_array_get(roofs, i), &x, &y);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t* row = json_array_get(rows, i);
    double gops = number_of(row, "gops"), gbs = number_of(row, "gbs");
    if (gops <= 0 || gbs <= 0) continue;
    char text[256];
    label_row(row, text);
    double at_x = place(&x, gops / gbs), at_y = place(&y, gops);
    draw(d, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" class=\"call\"/>\n", at_x, at_y);
    draw_text(d, at_x - 8, at_y + 4, "end", text);
  }
  return y.from + 60;
}

qn_status_t show_svg(const json_t* results, text_t* out) {
  const json_t* rows = json_object_get(results, "rows");
  const json_t* roofs = json_object_get(results, "roofs");
  drawing_t d = {out, QN_OK};
  double height = TOP + (double)json_array_size(rows) * BAR + 40 + PLOT_HEIGHT + 100;
  draw(&d,
       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
       "viewBox=\"0 0 %.0f %.0f\">\n<style>text{font:12px sans-serif;fill:#222}"
       ".wait{fill:#9db8d9}.call{fill:#c25b2a}.grid{stroke:#ddd}.whisker{stroke:#222}"
       ".roof{stroke:#222;stroke-width:1.5}</style>\n"
       "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
       WIDTH, height, WIDTH, height);
  draw_text(&d, 10, 20, "start", text_of(results, "signature"));
  draw_text(&d, 10, 38, "start", text_of(json_object_get(results, "machine"), "processor"));
  double bottom = draw_bars(&d, rows, TOP);
  (void)draw_roofline(&d, roofs, rows, bottom + 20);
  draw(&d, "</svg>\n");
  return d.status;
}
