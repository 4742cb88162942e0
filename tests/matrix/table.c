/* table.c - see table.h; the grammar is at the top of rules.txt. */
#include "matrix/table.h"

#include "store/store.h"
#include <diloco/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64, LAYERS = 3 };

static struct {
    char name[VALUE_TEXT];
    const dl_option *row;
} names[MAX_NAMES];
static size_t n_names;
static const char *reading;
static size_t line_number;

static _Noreturn void wrong(const char *what, const char *at)
{
    fprintf(stderr, "%s:%zu: %s: \"%s\"\n", reading, line_number, what, at);
    exit(2);
}

static void copy(char *out, size_t cap, const char *text, size_t len)
{
    if (len >= cap) wrong("too long", text);
    memcpy(out, text, len);
    out[len] = 0;
}

const dl_option *table_option(const char *name)
{
    for (size_t i = 0; i < n_names; i++)
        if (!strcmp(names[i].name, name)) return names[i].row;
    return dl_option_find(dl_config_table, name);
}

/* ---- values ----------------------------------------------------------------------------- */

static void add_setting(value *out, const char *text, size_t len)
{
    char name[VALUE_TEXT];
    const char *equals = memchr(text, '=', len);
    if (!equals || out->n == MAX_SETTINGS) wrong("not SHORT=TEXT", text);
    copy(name, sizeof name, text, (size_t)(equals - text));
    setting *s = &out->settings[out->n++];
    s->row = table_option(name);
    if (!s->row) wrong("there is no option", name);
    copy(s->text, sizeof s->text, equals + 1, len - (size_t)(equals + 1 - text));
}

static void read_settings(value *out, const char *text, char between)
{
    const char separators[] = {between, 0};
    *out = (value){.n = 0};
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        const size_t len = strcspn(text, separators);
        add_setting(out, text, len);
        text += len;
    }
}

void table_read_value(value *out, const char *text)
{
    read_settings(out, text, ' ');
}

/* A store that -DDILOCO_CLOUD=OFF leaves out. */
static bool is_built(const setting *s)
{
    if (strcmp(s->row->name, "run.store") != 0) return true;
    const bool built = dl_store_check_url(s->text) != DILOCO_EREFUSED;
    if (!built) printf("left out: %s, which this build has no store for\n", s->text);
    return built;
}

static void add_value(axis *to, const value *v)
{
    if (!is_built(&v->settings[0])) return;
    for (size_t i = 0; v->n == 1 && i < to->n; i++)
        if (to->values[i].n == 1 && !strcmp(to->values[i].settings[0].text, v->settings[0].text))
            return;
    if (to->n == MAX_VALUES) wrong("more values than there is room for", v->settings[0].text);
    to->values[to->n++] = *v;
}

static void add_all(axis *to, const dl_option *row)
{
    value v = {.settings = {{.row = row}}, .n = 1};
    const char *name;
    for (size_t i = 0; (name = diloco_choice_at(row->name, i)); i++) {
        copy(v.settings[0].text, VALUE_TEXT, name, strlen(name));
        add_value(to, &v);
    }
    for (size_t i = 0; row->choices && row->choices[i]; i++) {
        copy(v.settings[0].text, VALUE_TEXT, row->choices[i], strlen(row->choices[i]));
        add_value(to, &v);
    }
    if (to->n == 0) wrong("it has no list of values", row->name);
}

static void read_axis(axis *out, char *text)
{
    char *rest;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        value v;
        read_settings(&v, word, '+');
        if (v.n == 1 && !strcmp(v.settings[0].text, "*"))
            add_all(out, v.settings[0].row);
        else
            add_value(out, &v);
    }
}

/* ---- conditions ------------------------------------------------------------------------- */

static quantity read_quantity(const char *name)
{
    if (!strcmp(name, "H%P")) return (quantity){OF_H_MOD_P, NULL};
    if (!strcmp(name, "H/P")) return (quantity){OF_H_BY_P, NULL};
    if (!strcmp(name, "P")) return (quantity){OF_P, NULL};
    const dl_option *row = table_option(name);
    return row ? (quantity){OF_OPTION, row} : (quantity){OF_NOTHING, NULL};
}

static void read_right_side(condition *c, const char *text)
{
    char *end;
    if (c->is == ONE_OF || c->is == NONE_OF) {
        const int n = snprintf(c->list, sizeof c->list, ",%s,", text);
        if (n < 0 || (size_t)n >= sizeof c->list) wrong("too long", text);
        return;
    }
    c->than = read_quantity(text);
    if (c->than.kind != OF_NOTHING) return;
    c->number = strtod(text, &end);
    if (*end || end == text) wrong("neither a number nor an option", text);
}

static void read_condition(condition *c, const char *word)
{
    static const struct {
        const char *sign;
        int is;
    } signs[] = {{"!=", NONE_OF}, {">=", AT_LEAST}, {"=", ONE_OF}, {">", ABOVE}, {"<", BELOW}};
    char name[VALUE_TEXT];
    const size_t len = strcspn(word, "!=<>?");
    copy(name, sizeof name, word, len);
    *c = (condition){.what = read_quantity(name), .is = WAS_SET};
    if (c->what.kind == OF_NOTHING) wrong("there is no option", name);
    if (!strcmp(word + len, "?")) return;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (!strncmp(word + len, signs[i].sign, strlen(signs[i].sign))) {
            c->is = signs[i].is;
            read_right_side(c, word + len + strlen(signs[i].sign));
            return;
        }
    wrong("no condition", word);
}

/* PROTOCOL's P for the model of the matrix: three blocks and what is around them. */
static double fragments_of(const dl_config *c)
{
    const int64_t each = c->fragment_layers ? c->fragment_layers : 1;
    return c->fragments ? (double)c->fragments : (double)((LAYERS + each - 1) / each + 1);
}

static double number_of(const quantity *q, const dl_config *config)
{
    const double H = (double)config->local_steps, P = fragments_of(config);
    if (q->kind == OF_P) return P;
    if (q->kind == OF_H_MOD_P) return fmod(H, P);
    if (q->kind == OF_H_BY_P) return floor(H / P);
    const char *field = (const char *)config + q->row->offset;
    if (q->row->type == DL_OPTION_INT) return (double)*(const int64_t *)(const void *)field;
    if (q->row->type == DL_OPTION_REAL) return *(const double *)(const void *)field;
    wrong("it is no number", q->row->name);
}

static bool is_listed(const condition *c, const dl_config *config)
{
    char text[DL_PATH_MAX + 3];
    const dl_option_type type = c->what.kind == OF_OPTION ? c->what.row->type : DL_OPTION_REAL;
    if (c->what.kind == OF_OPTION && dl_option_string(c->what.row, config))
        snprintf(text, sizeof text, ",%s,", dl_option_string(c->what.row, config));
    else if (type == DL_OPTION_BOOL)
        wrong("a condition of true or false is not known", c->what.row->name);
    else
        snprintf(text, sizeof text, ",%g,", number_of(&c->what, config));
    return strstr(c->list, text) != NULL;
}

/* Is it what the preset says, or, if that says nothing, the default? */
static bool is_there_anyhow(const dl_option *row, const dl_config *config)
{
    const char *there = row->fallback;
    const diloco_preset *preset;
    for (size_t i = 0; (preset = diloco_preset_at(i)); i++)
        for (const diloco_preset_value *v = preset->values; v->name; v++)
            if (!strcmp(preset->name, config->preset) && !strcmp(v->name, row->name))
                there = v->value;
    return dl_option_reads(row, config, there);
}

static bool was_set(const dl_option *row, const value *const *given, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < given[i]->n; k++)
            if (given[i]->settings[k].row == row) return true;
    return false;
}

static bool holds(const condition *c, const dl_config *config, const value *const *given, size_t n)
{
    if (c->is == WAS_SET)
        return was_set(c->what.row, given, n) && !is_there_anyhow(c->what.row, config);
    if (c->is == ONE_OF) return is_listed(c, config);
    if (c->is == NONE_OF) return !is_listed(c, config);
    const double left = number_of(&c->what, config);
    const double right = c->than.kind == OF_NOTHING ? c->number : number_of(&c->than, config);
    return c->is == ABOVE ? left > right : c->is == BELOW ? left < right : left >= right;
}

bool table_holds(const rule *r, const dl_config *config, const value *const *given, size_t n)
{
    for (size_t i = 0; i < r->n_conditions; i++)
        if (!holds(&r->conditions[i], config, given, n)) return false;
    return r->n_conditions > 0;
}

/* ---- lines ------------------------------------------------------------------------------ */

/* The next of the fields that '|' divides, without the blanks around it. */
static char *next_field(char **rest)
{
    char *field = strsep(rest, "|");
    if (!field) wrong("a field is missing", "|");
    field += strspn(field, " ");
    for (size_t len = strlen(field); len && field[len - 1] == ' ';)
        field[--len] = 0;
    return field;
}

static void read_rule(rule *out, int verb, char *line)
{
    char *rest;
    *out = (rule){.verb = verb};
    const char *code = next_field(&line);
    copy(out->code, sizeof out->code, code, strlen(code));
    char *when = next_field(&line);
    copy(out->when, sizeof out->when, when, strlen(when));
    const char *words = next_field(&line), *way_out = next_field(&line);
    copy(out->words, sizeof out->words, words, strlen(words));
    copy(out->way_out, sizeof out->way_out, way_out, strlen(way_out));
    table_read_value(&out->example, next_field(&line));
    for (char *word = strtok_r(when, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (out->n_conditions == MAX_CONDITIONS) wrong("more conditions than fit", word);
        read_condition(&out->conditions[out->n_conditions++], word);
    }
}

static void read_name(char *text)
{
    char *rest = text;
    const char *name = strsep(&rest, " ");
    if (n_names == MAX_NAMES || !rest) wrong("no name", text);
    copy(names[n_names].name, VALUE_TEXT, name, strlen(name));
    names[n_names].row = dl_option_find(dl_config_table, rest + strspn(rest, " "));
    if (!names[n_names++].row) wrong("there is no option", rest);
}

static void read_line(table *out, char *line)
{
    static const char *const verbs[] = {
        [REFUSED] = "refused", [INVALID] = "invalid", [WARNED] = "warned"};
    char *rest = line;
    const char *word = strsep(&rest, " ");
    if (!*word || *word == '#') return;
    if (!rest) wrong("what of it?", word);
    if (!strcmp(word, "name")) {
        read_name(rest);
        return;
    }
    if (!strcmp(word, "axis") || !strcmp(word, "beside")) {
        if (out->n_axes == MAX_AXES) wrong("more axes than fit", word);
        axis *a = &out->axes[out->n_axes++];
        a->beside = *word == 'b';
        read_axis(a, rest);
        return;
    }
    for (int verb = 0; verb < 3; verb++)
        if (!strcmp(word, verbs[verb])) {
            if (out->n_rules == MAX_RULES) wrong("more rules than fit", word);
            read_rule(&out->rules[out->n_rules++], verb, rest);
            return;
        }
    wrong("an unknown word", word);
}

void table_read(table *out, const char *path)
{
    char line[2 * LINE_TEXT];
    reading = path;
    line_number = 0;
    memset(out, 0, sizeof *out);
    FILE *f = fopen(path, "r");
    if (!f) wrong("it cannot be opened", path);
    while (fgets(line, sizeof line, f)) {
        line_number++;
        line[strcspn(line, "\n")] = 0;
        read_line(out, line);
    }
    fclose(f);
}
