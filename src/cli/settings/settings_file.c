/* settings_file.c - an included file is walked before the one that includes it, which thereby wins.
 *
 * Each walk has one function for a value; the collected values are in the walker. Errors name
 * the file, the line and the column. */
#include "cli/settings/settings_file.h"

#include "base/file.h"
#include "cli/display/units.h"
#include "cli/settings/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Bytes of a file, of a place, and of a key; and files in one chain of includes. */
enum { FILE_MAX = 1 << 20, PLACE_MAX = DL_PATH_MAX + 32, KEY_MAX = 256, CHAIN_MAX = 8 };

/* A file of settings in memory, with the one that it includes. */
struct dl_settings_file {
    dl_config_path path; /* as given, or relative to the including file */
    const char *shown;   /* of path: short enough for an origin */
    dl_buf text;
    char section[KEY_MAX];            /* "data.", where [data] includes it; else "" */
    dl_settings_file *included;       /* owned; NULL: none */
    const dl_settings_file *includer; /* NULL: the file that was opened first */
    dev_t device;                     /* with `inode`, the identity of the file on the disk */
    ino_t inode;
};

/* One walk over a file. The members that a walk does not need are NULL. */
typedef struct walker {
    const dl_settings_file *file; /* the current one */
    diloco_status status;         /* the first mistake; it ends the walk */
    dl_settings_names *names;
    dl_config *config;      /* that the values are set in */
    dl_plato *plato;        /* notes about Plato's keys */
    dl_settings_file *next; /* the next file to include */
} walker;

/* A file of this name is meant as TOML, so its first mistake is reported as such. */
static bool is_named_toml(const char *path)
{
    const size_t len = strlen(path);
    return len >= 5 && strcmp(path + len - 5, ".toml") == 0;
}

/* Explain that a file is no TOML, after an error of reading it. A first-time user gives the text
 * to train on. */
static diloco_status refuse_as_not_toml(const char *path)
{
    char why[1024], word[DL_PATH_MAX + 32], set[DL_PATH_MAX + 32];
    snprintf(why, sizeof why, "%s", diloco_error_text());
    snprintf(set, sizeof set, "data.train_path=%s", path);
    return dl_fail(
        DILOCO_EINVAL,
        "%s: this is no configuration file in TOML; to train on it as text:  diloco train "
        "--set %s  (%s)",
        path, dl_shell_word(word, sizeof word, set), why);
}

/* The first mistake ends the walk, and is its status. */
static diloco_status walk(walker *w, const dl_settings_file *file, dl_toml_fn fn)
{
    dl_toml_error error;
    w->file = file;
    w->status = DILOCO_OK;
    if (!dl_toml_walk((const char *)file->text.data, file->text.len, fn, w, &error)) {
        dl_fail(DILOCO_EINVAL, "%s:%u:%u: %s", file->path, error.at.line, error.at.column,
                error.text);
        return is_named_toml(file->path) ? DILOCO_EINVAL : refuse_as_not_toml(file->path);
    }
    return w->status;
}

/* The included file comes first, so later values replace its own. The recursion is at most
 * CHAIN_MAX deep. */
static diloco_status walk_all(walker *w, const dl_settings_file *file, dl_toml_fn fn)
{
    if (file->included) DL_TRY(walk_all(w, file->included, fn));
    return walk(w, file, fn);
}

/* "run.toml:12:8", as it becomes the origin of a value. */
static void place(char out[PLACE_MAX], const dl_settings_file *f, dl_toml_place at)
{
    snprintf(out, PLACE_MAX, "%s:%u:%u", f->shown, at.line, at.column);
}

/* Return true if the text begins with this prefix; "" begins every text. */
static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Keys of an included file may leave out the section that includes it. */
static void full_key(char out[KEY_MAX], const dl_settings_file *f, const char *key)
{
    snprintf(out, KEY_MAX, "%s%s", begins(key, f->section) ? "" : f->section, key);
}

/* ---- opening */

/* Return true for "include" and "data.include". The latter gives the section "data." to the keys
 * of the file. */
static bool is_include(const char *key)
{
    const char *dot = strchr(key, '.');
    return strcmp(dot ? dot + 1 : key, "include") == 0;
}

/* The included path is relative to the file that names it. Its section continues the section of
 * that file. */
static diloco_status find_included(walker *w, const dl_toml_value *value)
{
    char key[KEY_MAX];
    full_key(key, w->file, value->key);
    const char *from = w->file->path, *slash = strrchr(from, '/'), *dot = strrchr(key, '.');
    int folder = slash && value->text[0] != '/' ? (int)(slash + 1 - from) : 0;
    if (value->type != DL_TOML_STRING || w->next)
        return dl_fail(DILOCO_EINVAL, "%s:%u:%u: %s names one other file, in quotes",
                       w->file->shown, value->at.line, value->at.column, value->key);
    w->next = calloc(1, sizeof *w->next);
    if (!w->next) return dl_fail(DILOCO_ENOMEM, "out of memory for a configuration file");
    int n = snprintf(w->next->path, sizeof w->next->path, "%.*s%s", folder, from, value->text);
    snprintf(w->next->section, KEY_MAX, "%.*s", dot ? (int)(dot + 1 - key) : 0, key);
    w->next->includer = w->file;
    return n < (int)sizeof w->next->path
               ? DILOCO_OK
               : dl_fail(DILOCO_EINVAL, "%s: the path that %s names is too long", from, value->key);
}

/* The walk's function that looks for included files, and takes no value. */
static bool on_include(void *user, const dl_toml_value *value)
{
    walker *w = user;
    if (is_include(value->key)) w->status = find_included(w, value);
    return !w->status;
}

/* Return a path that an origin has room for. Origins hold 95 characters, so of a long path only
 * its last component is shown. */
static const char *short_enough(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strlen(path) > 72 && slash ? slash + 1 : path;
}

/* Refuse a file that includes itself, directly or through others, and a chain that is too long. */
static diloco_status check_chain(dl_settings_file *f, const struct stat *info)
{
    int n = 1;
    f->device = info->st_dev;
    f->inode = info->st_ino;
    for (const dl_settings_file *at = f->includer; at; at = at->includer, n++)
        if (at->device == f->device && at->inode == f->inode)
            return dl_fail(DILOCO_EINVAL, "%s includes itself, directly or through other files",
                           at->path);
    if (n <= CHAIN_MAX) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s: at most %d files include each other in a chain", f->path,
                   CHAIN_MAX);
}

/* A folder in place of a file is likely a run, so the error says how to join it. */
static diloco_status read_file(dl_settings_file *f)
{
    struct stat info;
    char word[DL_PATH_MAX + 8];
    f->shown = short_enough(f->path);
    dl_buf_init(&f->text, FILE_MAX);
    const bool there = stat(f->path, &info) == 0;
    if (there && S_ISDIR(info.st_mode))
        return dl_fail(DILOCO_EINVAL,
                       "%s is a folder, not a configuration file; to take part in a run: diloco "
                       "join %s",
                       f->path, dl_shell_word(word, sizeof word, f->path));
    if (there) DL_TRY(check_chain(f, &info));
    diloco_status status = dl_file_read(&f->text, f->path);
    if (status == DILOCO_EPROTO) return refuse_as_not_toml(f->path);
    return status == DILOCO_ENOENT
               ? dl_fail(DILOCO_EINVAL, "%s: there is no such configuration file", f->path)
               : status;
}

/* Read the file, then the one that it includes, recursively. check_chain bounds the recursion. */
static diloco_status read_all(dl_settings_file *f)
{
    walker w = {.next = NULL};
    DL_TRY(read_file(f));
    diloco_status status = walk(&w, f, on_include);
    f->included = w.next;
    return !status && f->included ? read_all(f->included) : status;
}

/* Included files are read here too, so later walks cannot fail on the disk. */
diloco_status dl_settings_file_open(dl_settings_file **out, const char *path)
{
    dl_settings_file *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) return dl_fail(DILOCO_ENOMEM, "out of memory for a configuration file");
    int n = snprintf(f->path, sizeof f->path, "%s", path);
    diloco_status status = n < (int)sizeof f->path
                               ? read_all(f)
                               : dl_fail(DILOCO_EINVAL, "%.64s…: the path is too long", path);
    if (status)
        dl_settings_file_close(f);
    else
        *out = f;
    return status;
}

/* Closes the included file as well. */
void dl_settings_file_close(dl_settings_file *f)
{
    if (!f) return;
    dl_settings_file_close(f->included);
    dl_buf_deinit(&f->text);
    free(f);
}

/* ---- names */

/* A preset of another type than text is left to the option table, which refuses it. */
static bool is_preset(const dl_toml_value *value)
{
    return strcmp(value->key, "preset") == 0 && value->type == DL_TOML_STRING;
}

/* The last preset or type wins, as with values. */
static bool on_name(void *user, const dl_toml_value *value)
{
    walker *w = user;
    dl_settings_names *n = w->names;
    char key[KEY_MAX];
    full_key(key, w->file, value->key);
    n->clients |= strcmp(key, "clients.total_clients") == 0;
    if (strcmp(key, "server.type") == 0)
        snprintf(n->server_type, sizeof n->server_type, "%s", value->text);
    if (!is_preset(value)) return true;
    snprintf(n->preset, sizeof n->preset, "%s", value->text);
    place(n->at, w->file, value->at);
    return true;
}

/* Unknown keys and wrong values are no errors yet; dl_settings_file_take reports them. */
diloco_status dl_settings_file_names(dl_settings_names *out, const dl_settings_file *file)
{
    walker w = {.names = out};
    *out = (dl_settings_names){.preset = ""};
    return walk_all(&w, file, on_name);
}

/* ---- values */

/* A list of words in TOML becomes a JSON array: words may have commas and blanks. */
static bool is_words(const dl_option *row)
{
    return strcmp(row->unit, "words") == 0;
}

/* Any other list becomes one text with commas. */
static bool may_be_list(const dl_option *row)
{
    return strcmp(row->unit, "paths") == 0 || strcmp(row->unit, "names") == 0 || is_words(row);
}

/* Refuse a string with a comma in a list that becomes one text with commas. */
static diloco_status check_commas(const walker *w, const dl_toml_value *value)
{
    char at[PLACE_MAX];
    if (value->type != DL_TOML_LIST || !value->comma_at.line) return DILOCO_OK;
    place(at, w->file, value->comma_at);
    return dl_fail(DILOCO_EINVAL,
                   "%s: a comma separates the strings of a list, so none may hold one", at);
}

/* The words for an error about a value of the wrong type. */
static const char *kind_of(const dl_option *row)
{
    switch (row->type) {
    case DL_OPTION_BOOL:
        return "true or false, without quotes";
    case DL_OPTION_INT:
        return "a whole number, without quotes";
    case DL_OPTION_REAL:
        return "a number, without quotes";
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
    case DL_OPTION_CHOICE:
        break;
    }
    if (is_words(row)) return "a list of words, such as [\"python\", \"job.py\"]";
    return may_be_list(row) ? "text in quotes, or a list of such" : "text in quotes";
}

/* Integers are accepted for real options, as 1 is a number too. A text is accepted for a number
 * of steps only. */
static bool fits(const dl_option *row, dl_toml_type type)
{
    switch (row->type) {
    case DL_OPTION_BOOL:
        return type == DL_TOML_BOOL;
    case DL_OPTION_INT: /* steps may be Plato's "1000it" */
        return type == DL_TOML_INTEGER ||
               (type == DL_TOML_STRING && strcmp(row->unit, "steps") == 0);
    case DL_OPTION_REAL:
        return type == DL_TOML_INTEGER || type == DL_TOML_FLOAT;
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
    case DL_OPTION_CHOICE:
        break;
    }
    return type == DL_TOML_STRING || (type == DL_TOML_LIST && may_be_list(row));
}

/* Refuse an option that is given twice. A second name of the same option is not a second key to
 * TOML. */
static diloco_status check_once(const walker *w, const dl_option *row, const char *at)
{
    const char *before = dl_config_origin(w->config, row->name), *shown = w->file->shown;
    if (!begins(before, shown) || before[strlen(shown)] != ':') return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s: %s%s%s%s is given already at %s; keep one", at, row->name,
                   row->alias ? " (also " : "", row->alias ? row->alias : "", row->alias ? ")" : "",
                   before);
}

/* Set one value. An unknown key is reported at the key's place, a wrong value at the value's. */
static diloco_status take_value(const walker *w, const dl_toml_value *value)
{
    char at[PLACE_MAX], room[KEY_MAX];
    const char *key = room, *text = value->text;
    diloco_status status;
    full_key(room, w->file, value->key);
    place(at, w->file, value->at);
    const dl_option *row = dl_option_find(dl_config_table, key);
    if (row && is_words(row) && value->type == DL_TOML_LIST)
        text = value->json;
    else
        DL_TRY(check_commas(w, value));
    if (dl_plato_takes(&status, w->plato, key, text, at)) return status;
    dl_plato_translate(&key, &text);
    row = dl_option_find(dl_config_table, key);
    if (!row) place(at, w->file, value->key_at);
    if (row && !fits(row, value->type))
        return dl_fail(DILOCO_EINVAL, "%s: %s is %s", at, row->name, kind_of(row));
    if (row) DL_TRY(check_once(w, row, at));
    return dl_config_set(w->config, key, text, at);
}

/* The preset and inclusion have been handled; every other key is a value. */
static bool on_value(void *user, const dl_toml_value *value)
{
    walker *w = user;
    if (!is_preset(value) && !is_include(value->key)) w->status = take_value(w, value);
    return !w->status;
}

/* The preset was applied before, and inclusion is done. */
diloco_status dl_settings_file_take(dl_config *config, dl_plato *plato,
                                    const dl_settings_file *file)
{
    walker w = {.config = config, .plato = plato};
    return walk_all(&w, file, on_value);
}
