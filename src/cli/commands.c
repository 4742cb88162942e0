/* commands.c - the subcommands, one row each, in the order help shows them. */
#include "cli/cli.h"

#include <string.h>

#define FLAGS DL_FLAGS

const dl_command dl_commands[] = {
    {"init", "[DIR]", "write a commented starter configuration, run.toml",
     "It asks for nothing: flags choose, and the file can be edited. Nothing is overwritten.\n"
     "  diloco init --text book.txt && diloco train run.toml",
     FLAGS(DL_FLAG_PRESET, DL_FLAG_MODEL, DL_FLAG_TEXT), DL_SETS_NONE, dl_cmd_init},
    {"train", "[CONFIG]", "start a run, or resume it: the same command again goes on",
     "CONFIG is a TOML file; values come from the defaults, the preset, the file and the flags,\n"
     "later ones winning. Without run.store the log is kept in runs/<name of CONFIG>.\n"
     "Ctrl-C stops after the step under way, and the same command resumes, to equal bits.",
     FLAGS(DL_FLAG_REPLICAS, DL_FLAG_ROLE, DL_FLAG_STORE, DL_FLAG_COORD, DL_FLAG_SEED,
           DL_FLAG_PRESET, DL_FLAG_RECORD, DL_FLAG_RUN_LINK, DL_FLAG_SET, DL_FLAG_PRINT_CONFIG,
           DL_FLAG_JSON, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
     DL_SETS_ALL, dl_cmd_train},
    {"join", "[URL]", "take part in a run; its settings come from the run itself",
     "The data is this machine's own copy: --set data.train_path=FILE. URL may be the join line\n"
     "that a hub printed; read from @FILE, or from stdin as -, it stands in no list of processes.\n"
     "A run without a log is joined by one of its nodes, --peer HOST:PORT; --store is then the\n"
     "folder of this machine's nodes (default runs/swarm), and --set swarm.listen=HOST:PORT\n"
     "where they are reached.",
     FLAGS(DL_FLAG_PEER, DL_FLAG_STORE, DL_FLAG_REPLICAS, DL_FLAG_ROLE, DL_FLAG_RECORD,
           DL_FLAG_RUN_LINK, DL_FLAG_RANK, DL_FLAG_SET, DL_FLAG_PRINT_CONFIG, DL_FLAG_JSON,
           DL_FLAG_QUIET, DL_FLAG_VERBOSE),
     DL_SETS_MACHINE, dl_cmd_join},
    {"launch", "CONFIG", "start a run's replicas on other machines, and keep them running",
     "Creates the run if it does not exist, starts its replicas with the executor --on, restarts\n"
     "those that are lost, and ends when the run is complete. Ctrl-C leaves the replicas running;\n"
     "the same command finds them again. docs/launch.md describes each executor.\n"
     "  diloco launch run.toml --on ssh://alice@a,alice@b --replicas 2",
     FLAGS(DL_FLAG_ON, DL_FLAG_LAUNCH_REPLICAS, DL_FLAG_STORE, DL_FLAG_COORD, DL_FLAG_SEED,
           DL_FLAG_PRESET, DL_FLAG_BUDGET, DL_FLAG_DRY_RUN, DL_FLAG_DETACH, DL_FLAG_SET,
           DL_FLAG_QUIET, DL_FLAG_VERBOSE),
     DL_SETS_ALL, dl_cmd_launch},
    {"launch status", "URL|CONFIG", "launched replicas: state, exit code, machine time", NULL,
     FLAGS(DL_FLAG_SET, DL_FLAG_JSON), DL_SETS_MACHINE, dl_cmd_launch_status},
    {"launch logs", "URL|CONFIG", "output of launched replicas", NULL,
     FLAGS(DL_FLAG_RANK, DL_FLAG_FOLLOW, DL_FLAG_SET), DL_SETS_MACHINE, dl_cmd_launch_logs},
    {"launch cancel", "URL|CONFIG", "stop all launched replicas; launch starts them again", NULL,
     FLAGS(DL_FLAG_SET), DL_SETS_MACHINE, dl_cmd_launch_cancel},
    {"launch collect", "URL|CONFIG", "wait until every launched replica is over", NULL,
     FLAGS(DL_FLAG_TIMEOUT, DL_FLAG_SET, DL_FLAG_JSON), DL_SETS_MACHINE, dl_cmd_launch_collect},
    {"launch scale", "URL|CONFIG", "change the number of launched replicas",
     "A `diloco launch` that follows the run starts what is missing. Replicas above the number\n"
     "are stopped at once.",
     FLAGS(DL_FLAG_LAUNCH_REPLICAS, DL_FLAG_SET), DL_SETS_MACHINE, dl_cmd_launch_scale},
    {"launch executors", NULL, "executors: needs, capabilities, what each was tested against", NULL,
     FLAGS(DL_FLAG_JSON), DL_SETS_NONE, dl_cmd_launch_executors},
    {"serve", "[DIR]", "the hub: a folder of runs over HTTP, for replicas that share no disk",
     "A run in DIR/name is http://HOST:PORT/name. Without --token-file whoever reaches the port "
     "may\n"
     "read and write. Ctrl-C lets requests under way finish. docs/hub.md has all of it.",
     FLAGS(DL_FLAG_LISTEN, DL_FLAG_CERT, DL_FLAG_KEY, DL_FLAG_MAKE_CERT, DL_FLAG_TOKEN_FILE,
           DL_FLAG_MEMBERS, DL_FLAG_JOIN_LINE, DL_FLAG_S3_KEYS, DL_FLAG_MAX_OBJECT,
           DL_FLAG_MAX_CONNECTIONS, DL_FLAG_INSECURE, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
     DL_SETS_NONE, dl_cmd_serve},
    {"id", NULL, "this machine's key: its public half; made if there is none",
     "An Ed25519 key in PEM that only you can read. Runs with run.roster sign with it. What is\n"
     "printed may be known to anybody; the file to nobody.",
     FLAGS(DL_FLAG_ID_KEY, DL_FLAG_JSON), DL_SETS_NONE, dl_cmd_id},
    {"invite", "URL", "let one more replica into a run with run.roster = invited",
     "Prints a line that is good for one replica, once. Who gets it puts it into a file and takes\n"
     "part with  diloco join URL --set run.invitation=FILE. Until then it is a secret.",
     FLAGS(DL_FLAG_FOR, DL_FLAG_ID_KEY), DL_SETS_NONE, dl_cmd_invite},
    {"status", "URL", "what a run is, how far it is, who takes part, what it waits for",
     "It only reads. With --watch a terminal shows the newest; elsewhere each is printed, with\n"
     "--json as one line.",
     FLAGS(DL_FLAG_JSON, DL_FLAG_WHY, DL_FLAG_WATCH), DL_SETS_NONE, dl_cmd_status},
    {"log", "URL", "the entries of a run's log: who counted, loss, bytes, digests",
     "With --traffic, of each commit: bytes and requests of all replicas together, bytes a second\n"
     "and, with --cost, their price; then all bytes of the run by kind. With --events everything\n"
     "that the replicas have recorded, a line of JSON each. Replicas leave their records in the\n"
     "store every 30 s.\n"
     "  diloco log runs/demo --traffic --cost prices.toml",
     FLAGS(DL_FLAG_JSON, DL_FLAG_FROM, DL_FLAG_MOVED, DL_FLAG_TRAFFIC, DL_FLAG_EVENTS,
           DL_FLAG_COST),
     DL_SETS_NONE, dl_cmd_log},
    {"verify", "URL", "replay a run's log and compare every digest", NULL,
     FLAGS(DL_FLAG_JSON, DL_FLAG_VERBOSE), DL_SETS_NONE, dl_cmd_verify},
    {"ui", "URL", "the page of a run, or of a folder of runs, in your browser",
     "A server for you alone: on this machine, until Ctrl-C, with a token of its own in the "
     "address\n"
     "that it prints. It only reads. --compare adds another run. A hub (diloco serve) has the "
     "same\n"
     "page at its own address.",
     FLAGS(DL_FLAG_COMPARE, DL_FLAG_LISTEN, DL_FLAG_NO_BROWSER), DL_SETS_NONE, dl_cmd_ui},
    {"watch", "URL", "a run in the terminal: its loss, its replicas, what is wrong",
     "It is drawn again every second, in 80 columns and as many lines as there are, until the run "
     "is\n"
     "complete or Ctrl-C. Where the output is no terminal it is printed once. It only reads.",
     FLAGS(DL_FLAG_ONCE), DL_SETS_NONE, dl_cmd_watch},
    {"track", "URL", "a run's curves in Weights & Biases, MLflow or Trackio",
     "Sends the curves of the page until the run is complete or Ctrl-C; the same command\n"
     "continues. It needs the tracker's Python package in the Python that DILOCO_PYTHON names\n"
     "(default: that of the wheel, or python3). The tracker's own variables say where the curves\n"
     "go: WANDB_API_KEY, WANDB_MODE=offline, MLFLOW_TRACKING_URI, TRACKIO_DIR. It only reads the\n"
     "run.\n"
     "  WANDB_MODE=offline diloco track runs/run --to wandb",
     FLAGS(DL_FLAG_TRACKER, DL_FLAG_PROJECT, DL_FLAG_SENT, DL_FLAG_TRACK_ONCE), DL_SETS_NONE,
     dl_cmd_track},
    {"report", "URL", "a run's validation loss against steps and bytes, beside other runs'",
     "Reads the records that replicas leave in the store. It prints one line for each run;\n"
     "--json prints the points of the curves. --out FILE.html is the page of the run in one file\n"
     "that needs no server, FILE.md the same as text, and FILE.svg the curves alone. FILE.pdf is\n"
     "FILE.html printed by Chromium or Chrome; DILOCO_BROWSER names another program.\n"
     "  diloco report runs/a --compare runs/b --out loss.svg",
     FLAGS(DL_FLAG_COMPARE, DL_FLAG_REPORT_OUT, DL_FLAG_JSON), DL_SETS_NONE, dl_cmd_report},
    {"takeover", "URL", "make another life the single committer of a run",
     "For runs with run.single_committer, in stores that cannot create a name exactly once. All\n"
     "believe the one life that the entry before names; this puts an abort into the log that says\n"
     "that it is the newest life of --replica. Only you can know that the committer before is\n"
     "over: if it is not, both write, and whoever has read what is overwritten stops. A committer\n"
     "that is started again where its state folder is takes over by itself.",
     FLAGS(DL_FLAG_REPLICA), DL_SETS_NONE, dl_cmd_takeover},
    {"rm", "URL|CONFIG", "remove a run and the private state of its replicas on this machine",
     "It does not ask. It refuses while a replica of the run is alive: one that runs here, or one\n"
     "whose heartbeat changes. Only what diloco wrote is removed, and each thing is named. A run\n"
     "whose folder is gone leaves its replicas' state in <folder>.local: that is removed, too. A\n"
     "hub lets no client remove a run: do it on the hub's machine.\n"
     "  diloco rm runs/demo",
     FLAGS(DL_FLAG_SET), DL_SETS_MACHINE, dl_cmd_rm},
    {"void", "URL", "let a run continue without an entry that no replica can read",
     "For runs of two replicas, or of one committer. If the store lacks a contribution that an\n"
     "entry counts, or holds it damaged, every replica stops there. Only you can know whether the\n"
     "store lost it. First restore it if you can. Otherwise stop all replicas. This command then\n"
     "writes an abort at the log's end, as the newest process of --replica, which declares that\n"
     "entry and all later ones void. The run continues from the state before them.",
     FLAGS(DL_FLAG_REPLICA), DL_SETS_NONE, dl_cmd_void},
    {"eval", "URL|CONFIG", "loss of a run's model on its validation data, or on any text",
     "With a CONFIG, its run.store names the run and its data.* the data. --text tells the loss "
     "of\n"
     "a text by tokens and by bytes.",
     FLAGS(DL_FLAG_TEXT, DL_FLAG_SET, DL_FLAG_JSON), DL_SETS_MACHINE, dl_cmd_eval},
    {"sample", "URL", "text from a run's model", NULL,
     FLAGS(DL_FLAG_PROMPT, DL_FLAG_TOKENS, DL_FLAG_TEMPERATURE, DL_FLAG_TOP_K, DL_FLAG_TOP_P,
           DL_FLAG_SAMPLE_SEED, DL_FLAG_SET),
     DL_SETS_MACHINE, dl_cmd_sample},
    {"import", "DIR", "a Hugging Face model as what a run begins from",
     "DIR has config.json and safetensors, of Llama or Qwen3. The folder of --out then has\n"
     "model.safetensors, for trainer.init_from, and model.toml, a CONFIG that begins from it.",
     FLAGS(DL_FLAG_TO_PATH, DL_FLAG_JSON), DL_SETS_NONE, dl_cmd_import},
    {"export", "URL|CONFIG", "a run's model as a Hugging Face folder, npz or gguf",
     "  diloco export runs/demo --to hf --out model --dtype bf16",
     FLAGS(DL_FLAG_TO, DL_FLAG_TO_PATH, DL_FLAG_DTYPE, DL_FLAG_SET, DL_FLAG_JSON), DL_SETS_MACHINE,
     dl_cmd_export},
    {"presets", "[NAME]", "named algorithms: citation and values", NULL, FLAGS(DL_FLAG_JSON),
     DL_SETS_NONE, dl_cmd_presets},
    {"doctor", "[CONFIG|URL]", "look at this machine, at a store, or at the memory a run takes",
     NULL, FLAGS(DL_FLAG_RUN_LINK, DL_FLAG_SET, DL_FLAG_JSON), DL_SETS_ALL, dl_cmd_doctor},
    {"data", "CONFIG", "what the data is: tokens, shards, samples, digest", NULL,
     FLAGS(DL_FLAG_SET, DL_FLAG_JSON), DL_SETS_ALL, dl_cmd_data},
    {"data tokenizer", NULL, "learn a byte-pair tokenizer from text",
     "  diloco data tokenizer --text books/ --vocab 4096 --out tokenizer.json",
     FLAGS(DL_FLAG_TEXT, DL_FLAG_VOCAB, DL_FLAG_WORDS, DL_FLAG_TO_PATH, DL_FLAG_JSON), DL_SETS_NONE,
     dl_cmd_data_tokenizer},
    {"data prepare", NULL, "encode text into a folder of token shards, on all cores",
     "The folder is for data.datasource = tokens. Killed, the same command goes on.\n"
     "  diloco data prepare --text books/ --tokenizer tokenizer.json --out tokens",
     FLAGS(DL_FLAG_TEXT, DL_FLAG_TOKENIZER, DL_FLAG_TO_PATH, DL_FLAG_JSON, DL_FLAG_QUIET),
     DL_SETS_NONE, dl_cmd_data_prepare},
    {"sweep", "CONFIG", "train one configuration with several values of an option, and compare",
     "Every combination of the values is a run of its own, in its own folder under --out; what is\n"
     "finished there is not run again, and what was stopped goes on. All runs take equally many\n"
     "steps (trainer.rounds follows from H) unless trainer.rounds is swept. With --seeds, runs of\n"
     "one seed are compared with each other. run.store and run.record of CONFIG are not used.",
     FLAGS(DL_FLAG_SET_VALUES, DL_FLAG_SEEDS, DL_FLAG_EQUAL_STEPS, DL_FLAG_OUT, DL_FLAG_REPLICAS,
           DL_FLAG_SEED, DL_FLAG_PRESET, DL_FLAG_SET, DL_FLAG_JSON, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
     DL_SETS_ALL, dl_cmd_sweep},
    {"tune", "CONFIG", "search for better settings by many short runs",
     "Successive halving (arXiv:1502.07943): all candidates train for a few steps, the better "
     "third\n"
     "for three times as many, and the last three and CONFIG itself for --steps and several "
     "seeds.\n"
     "Candidates are the combinations of --set-values. By default the learning rates, the outer\n"
     "momentum and H (trainer.local_steps_per_round) vary around CONFIG's. Each trial has a "
     "folder\n"
     "under --out: the same command continues where it was stopped. DIR/tuned.toml is the result,\n"
     "and DIR/tune.json the evidence: every trial. No seed of CONFIG's own is used.\n"
     "  diloco tune run.toml --steps 500 --max-sent 1e9",
     FLAGS(DL_FLAG_SET_VALUES, DL_FLAG_TRIALS, DL_FLAG_TUNE_STEPS, DL_FLAG_TUNE_SEEDS,
           DL_FLAG_MAX_SENT, DL_FLAG_TUNE_OUT, DL_FLAG_REPLICAS, DL_FLAG_SEED, DL_FLAG_PRESET,
           DL_FLAG_SET, DL_FLAG_JSON, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
     DL_SETS_ALL, dl_cmd_tune},
    {"plan", "[CONFIG]", "what a model, a link and machines come to, before they are paid for",
     "How busy the machines will be with each method, how long the run takes, what it moves and\n"
     "costs, and which to take. The model is CONFIG's, or --params and --layers; the link is "
     "--gbit,\n"
     "--link, or what --probe measures.\n"
     "  diloco plan demo.toml --link 50mbit,100ms --replicas 4\n"
     "  diloco plan --params 1e9 --layers 24 --step-seconds 0.5 --gbit 0.2 --cost prices.toml\n"
     "--grid answers by the models that others published; --replay puts a measured run on a link.\n"
     "  diloco plan --grid published --params 1e9 --layers 24 --step-seconds 0.1 \\\n"
     "      --method streaming --sync-every 100 --tau 1 --bits 4 --utilization 0.5,0.9\n"
     "  diloco plan --replay record.jsonl --link 50mbit,100ms",
     FLAGS(DL_FLAG_PARAMS, DL_FLAG_LAYERS, DL_FLAG_STEP_SECONDS, DL_FLAG_STEPS,
           DL_FLAG_PLAN_REPLICAS, DL_FLAG_GBIT, DL_FLAG_LATENCY, DL_FLAG_LINK, DL_FLAG_PROBE,
           DL_FLAG_COST, DL_FLAG_ADVICE, DL_FLAG_METHOD, DL_FLAG_SYNC_EVERY,
           DL_FLAG_FRAGMENT_LAYERS, DL_FLAG_TAU, DL_FLAG_BITS, DL_FLAG_EXCHANGE,
           DL_FLAG_UTILIZATION, DL_FLAG_GRID, DL_FLAG_REPLAY, DL_FLAG_RECORDED_LINK, DL_FLAG_SET,
           DL_FLAG_JSON),
     DL_SETS_ALL, dl_cmd_plan},
    {"options", "[NAME]", "options: range, unit, default, meaning",
     "All options, or those with NAME in their names; where there are none, in their meanings.\n"
     "  diloco options lr",
     FLAGS(DL_FLAG_MARKDOWN), DL_SETS_NONE, dl_cmd_options},
    {"completion", "SHELL", "completion of commands, flags and settings for bash, zsh or fish",
     "Prints a script for the shell. `make install` and the Debian package install it; otherwise:\n"
     "  source <(diloco completion bash)                                      # in ~/.bashrc\n"
     "  diloco completion zsh >~/.zfunc/_diloco          # in a folder of fpath, before compinit\n"
     "  diloco completion fish >~/.config/fish/completions/diloco.fish",
     NULL, DL_SETS_NONE, dl_cmd_completion},
    {"man", "DIR", NULL, NULL, NULL, DL_SETS_NONE, dl_cmd_man},
    {"help", "[COMMAND]", "this text, or that of a command", NULL, NULL, DL_SETS_NONE, dl_cmd_help},
    {"host", NULL, NULL, "Started by launch over ssh; reads a request on stdin.", NULL,
     DL_SETS_NONE, dl_cmd_host},
    {"replica", "NAME", NULL, "Started by train and join; see processes.h.", FLAGS(DL_FLAG_NEW),
     DL_SETS_NONE, dl_cmd_replica},
    {0},
};

const dl_command *dl_command_find(const char *name)
{
    for (const dl_command *c = dl_commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}
