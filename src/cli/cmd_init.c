/* cmd_init.c - a starter configuration, commented, for a run of some minutes on one machine.
 *
 * Begin with put_all, which writes the file from top to bottom. */
#include "base/config.h"
#include "base/file.h"
#include "cli/display/units.h"
#include "cli/swarm.h"
#include <diloco/train.h>

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* STEPS replaces an interval above LONG; a model gets more blocks above MANY_FRAGMENTS. */
enum { FILE_MAX = 1 << 16, MAX_MODELS = 32, STEPS = 30, LONG = 50, MANY_FRAGMENTS = 18 };

/* The user's choices, and the values that follow from them. */
typedef struct starter {
    const char *preset, *summary, *model, *data; /* data: train_path */
    dl_config config;                            /* with the preset's values */
    bool images;                                 /* a model of images, not of text */
} starter;

/* ---- the request */

/* Refuse a model that this program does not have, with the nearest name. */
static diloco_status check_model(const char *name)
{
    const char *names[MAX_MODELS], *nearest;
    size_t n = 0;
    for (; n < MAX_MODELS && (names[n] = diloco_choice_at("trainer.model_name", n)); n++)
        if (strcmp(names[n], name) == 0) return DILOCO_OK;
    nearest = dl_nearest(names, n, name);
    return dl_fail(DILOCO_EINVAL,
                   "--model %.60s: there is no such model%s%s; see diloco options "
                   "trainer.model_name",
                   name, nearest ? "; did you mean " : "", nearest ? nearest : "");
}

/* Return the text of a flag, or the default. The text is argv's. */
static const char *flag_or(const dl_args *args, dl_flag flag, const char *otherwise)
{
    return dl_args_has(args, flag) ? args->flags[flag] : otherwise;
}

/* Return the data's path. A text that is there is named by its absolute path, so that the file
 * works in any folder. `room` holds it. */
static const char *data_of(char room[PATH_MAX], const dl_args *args, bool images)
{
    const char *given = flag_or(args, DL_FLAG_TEXT, images ? "data" : "text.txt");
    const char *whole = dl_args_has(args, DL_FLAG_TEXT) ? realpath(given, room) : NULL;
    return whole ? whole : given;
}

/* Read the flags, and apply the preset to a configuration of defaults, from which values are
 * taken. */
static diloco_status ask(starter *s, const dl_args *args, char room[PATH_MAX])
{
    s->preset = flag_or(args, DL_FLAG_PRESET, "diloco");
    s->model = flag_or(args, DL_FLAG_MODEL, "gpt");
    s->images = strcmp(s->model, "gpt") != 0;
    s->data = data_of(room, args, s->images);
    dl_config_init(&s->config);
    DL_TRY(check_model(s->model));
    DL_TRY(diloco_preset_apply(&s->config, s->preset));
    for (size_t i = 0; diloco_preset_at(i); i++)
        if (strcmp(diloco_preset_at(i)->name, s->preset) == 0)
            s->summary = diloco_preset_at(i)->summary;
    return DILOCO_OK;
}

/* ---- the file */

/* Add a line `key = "value"  # comment`. The value may hold quotes or other characters of the
 * user's. */
static diloco_status put_text(dl_buf *out, const char *key, const char *value, const char *comment)
{
    dl_json j; /* a JSON string is a TOML string as well */
    DL_TRY(dl_buf_addf(out, "%s = ", key));
    dl_json_init(&j, out);
    dl_json_str(&j, NULL, value);
    DL_TRY(dl_json_done(&j));
    return dl_buf_addf(out, "%s%s\n", *comment ? "  # " : "", comment);
}

/* Return the number of replicas: at least two, and in a run without a log as many as its rounds
 * need. */
static int64_t replicas_of(const starter *s)
{
    if (strcmp(s->preset, "single") == 0) return 1;
    return dl_swarm_is(&s->config) && s->config.min_peers > 2 ? s->config.min_peers : 2;
}

/* Add [run]. The store is a comment: its default follows from the name of the file. */
static diloco_status put_run(dl_buf *out, const starter *s)
{
    DL_TRY(dl_buf_addf(out,
                       "\n[run]\nreplicas = %" PRId64
                       "  # processes on this machine, each of which "
                       "trains a copy of the model\n",
                       replicas_of(s)));
    return dl_buf_addf(out, "# store = \"runs/run\"  # a folder, http://HOST:PORT/RUN of a hub, or "
                            "s3://BUCKET/RUN\n");
}

/* A small language model; with as many blocks as its fragments need. */
static diloco_status put_model(dl_buf *out, const starter *s)
{
    return dl_buf_addf(out,
                       "\n[parameters.optimizer]\nlr = 3e-3  # highest inner learning rate\n\n"
                       "[parameters.learning_rate]\nwarmup_steps = 50\n\n"
                       "[parameters.model]\nlayers = %d\nheads = 4\nchannels = 128\n"
                       "context = 128  # tokens of a training sequence\n",
                       s->config.fragments > MANY_FRAGMENTS ? 4 : 2);
}

/* The preset's own interval is taken where it is short; papers' intervals of 500 steps are for
 * long runs. So is their momentum of 0.9: after a few dozen entries it still overshoots. */
static diloco_status put_trainer(dl_buf *out, const starter *s)
{
    const int64_t H = s->config.local_steps;
    if (strcmp(s->preset, "diloco") == 0)
        DL_TRY(dl_buf_addf(out,
                           "\n[server.diloco]\nouter_momentum = 0.6  # 0.9 in runs of hundreds "
                           "of rounds\n"));
    DL_TRY(dl_buf_addf(out, "\n[trainer]\n"));
    DL_TRY(put_text(out, "model_name", s->model, ""));
    DL_TRY(dl_buf_addf(out, "rounds = 30  # exchanges between the replicas; then the run ends\n"));
    DL_TRY(dl_buf_addf(out,
                       "%slocal_steps_per_round = %" PRId64
                       "  # H: steps of each replica between two exchanges\n",
                       H > LONG ? "" : "# ", H > LONG ? (int64_t)STEPS : H));
    DL_TRY(dl_buf_addf(out, "batch_size = %d\neval_every = 5  # rounds between two evaluations\n",
                       s->images ? 32 : 4));
    return s->images ? DILOCO_OK : put_model(out, s);
}

/* Add [data]. The image set follows from the model, since each has its own shape of images. */
static diloco_status put_data(dl_buf *out, const starter *s)
{
    const bool cifar = strncmp(s->model, "resnet", 6) == 0;
    DL_TRY(dl_buf_addf(out, "\n[data]\n"));
    if (s->images) DL_TRY(put_text(out, "datasource", cifar ? "CIFAR10" : "MNIST", ""));
    return put_text(out, "train_path", s->data,
                    s->images ? "the folder of the image set"
                              : "text files or folders, with commas");
}

/* Write the whole file. Tables come last, because keys after a table belong to it. */
static diloco_status put_all(dl_buf *out, const starter *s, const char *path)
{
    char word[DL_PATH_MAX + 8];
    DL_TRY(
        dl_buf_addf(out,
                    "# A run of diloco. This starts it, and resumes it:\n#\n#     diloco train "
                    "%s\n#\n# diloco options explains every key; diloco options NAME finds one.\n",
                    dl_shell_word(word, sizeof word, path)));
    DL_TRY(put_text(out, "preset", s->preset, s->summary));
    DL_TRY(put_run(out, s));
    DL_TRY(put_trainer(out, s));
    return put_data(out, s);
}

/* ---- */

/* Print the next command. Data that is missing is named, as training could not begin without it. */
static void print_next_steps(const starter *s, const char *path)
{
    char word[DL_PATH_MAX + 8];
    dl_shell_word(word, sizeof word, path);
    printf("wrote %s\n", path);
    if (dl_file_exists(s->data))
        printf("next: diloco train %s\n", word);
    else
        printf("next: set data.train_path in it (%s does not exist); then: diloco train %s\n",
               s->data, word);
}

/* An existing file is never overwritten, since it may hold a person's changes. */
static diloco_status cmd_init(const dl_args *args)
{
    static starter s; /* too large for some stacks */
    char room[PATH_MAX];
    dl_config_path path;
    dl_buf text;
    const char *folder = args->target;
    const int n =
        snprintf(path, sizeof path, "%s%srun.toml", folder ? folder : "", folder ? "/" : "");
    if (n < 0 || (size_t)n >= sizeof path) return dl_fail(DILOCO_EINVAL, "DIR is too long a path");
    if (dl_file_exists(path))
        return dl_fail(DILOCO_EEXIST, "%s exists already: move it away, or name another folder",
                       path);
    /* The file is composed in memory and written at once, so a mistake leaves no half of it. */
    DL_TRY(ask(&s, args, room));
    if (folder) DL_TRY(dl_dir_make(folder));
    dl_buf_init(&text, FILE_MAX);
    diloco_status status = put_all(&text, &s, path);
    if (!status) status = dl_file_write(path, &(dl_span){text.data, text.len}, 1);
    dl_buf_deinit(&text);
    if (!status) print_next_steps(&s, path);
    return status;
}

const dl_command dl_command_init = {
    .name = "init",
    .target = "[DIR]",
    .summary = "write a commented starter configuration, run.toml",
    .details =
        "It asks for nothing: flags choose, and the file can be edited. Nothing is overwritten.\n"
        "  diloco init --text book.txt && diloco train run.toml",
    .flags = DL_FLAGS(DL_FLAG_PRESET, DL_FLAG_MODEL, DL_FLAG_TEXT),
    .run = cmd_init,
};
