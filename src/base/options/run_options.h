/* run_options.h - options of [run] and [general]: the preset, the log, its store, and the replicas
 * that take part. */
#ifndef DL_BASE_OPTIONS_RUN_OPTIONS_H
#define DL_BASE_OPTIONS_RUN_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* The admission rule of a run, fixed at its creation (log/identity.h). DL_TRUSTED is 0: a run
 * without keys. */
#define DL_POLICIES(X) \
    X(DL_TRUSTED, "trusted") \
    X(DL_OPEN, "open") \
    X(DL_INVITED, "invited") \
    X(DL_CLOSED, "closed")

/* P10: the action of an entry past its deadline (protocol/close_rule.c). */
#define DL_MISSINGS(X) \
    X(DL_MISSING_WAIT, "wait") \
    X(DL_MISSING_COMMIT_PARTIAL, "commit_partial") \
    X(DL_MISSING_ABORT, "abort")

/* P13.4: the action of a replica whose contribution an entry did not count (protocol/pace.c). */
#define DL_UNCOUNTEDS(X) \
    X(DL_UNCOUNTED_ADOPT, "adopt") \
    X(DL_UNCOUNTED_KEEP, "keep")

/* P25: `all` turns collection off, so that an audit can replay from entry 0
 * (state/collection.c). */
#define DL_RETAINS(X) \
    X(DL_RETAIN_RECENT, "recent") \
    X(DL_RETAIN_ALL, "all")

/* Contributions wait in memory or on disk; `auto` decides by their size (state/paths.c). */
#define DL_SPOOLS(X) \
    X(DL_SPOOL_AUTO, "auto") \
    X(DL_SPOOL_MEMORY, "memory") \
    X(DL_SPOOL_DISK, "disk")

/* The outer state between two uses of a fragment: in memory, or in a file (state/paths.c). `memory`
 * is refused on the CPU (run/open.c). */
#define DL_OFFLOADS(X) \
    X(DL_OFFLOAD_NONE, "none") \
    X(DL_OFFLOAD_MEMORY, "memory") \
    X(DL_OFFLOAD_DISK, "disk")

/* The work of a process in a federated run (fed/fed.c). */
#define DL_ROLES(X) \
    X(DL_ROLE_BOTH, "both") \
    X(DL_ROLE_SERVER, "server") \
    X(DL_ROLE_WORKER, "worker")

#define DL_RUN_CHOICES(X) \
    X(dl_policy, DL_POLICIES) \
    X(dl_missing_choice, DL_MISSINGS) \
    X(dl_uncounted_choice, DL_UNCOUNTEDS) \
    X(dl_retain_choice, DL_RETAINS) \
    X(dl_spool_choice, DL_SPOOLS) \
    X(dl_offload_choice, DL_OFFLOADS) \
    X(dl_role_choice, DL_ROLES)

/* Trackers of run.track, "name:place" (train/tracker_kinds.h). */
#define DL_TRACKERS(X) \
    X(tensorboard, "DIR") \
    X(csv, "FILE")
#define DL_TRACKER_FORM(name, place) " " #name ":" place ","

/* Options with AGREE are written into run.json, and a replica takes them from there. The others
 * belong to one machine or one process. */
#define DL_RUN_OPTIONS(X) \
    X(NAME, preset, "preset", "diloco", "", DL_OPTION_AGREE, \
      "Name of the algorithm whose values a run starts from; `diloco presets` lists them.", \
      .example = "streaming") \
    X(PATH, store, "run.store", "", "url", 0, \
      "Folder, hub or bucket that holds the run: a path, http://HOST:PORT/RUN or s3://BUCKET/RUN. Default: runs/NAME, by the name of CONFIG.", \
      .example = "shared/run") \
    X(PATH, coord, "run.coord", "", "url", DL_OPTION_AGREE, \
      "URL of a separate coordination store for the log and the heartbeats: etcd://HOST:PORT/RUN. Default: run.store holds everything.", \
      .needs = "swarm.consensus = log") \
    X(PATH, state_dir, "run.state_dir", "", "path", 0, \
      "Folder for the private state of replicas; none keeps none. Default: STORE.local/HOST beside a folder, under runs/ for a URL.") \
    X(BOOL, save_beside, "run.save_beside", "true", "", 0, \
      "Save the private state beside training, from a copy of it in memory, where contributions move beside training, too. A slow disk needs a second copy. A replica saves while training waits if a copy would take more than half of the free memory.", \
      .applies_when = "swarm.consensus = log") \
    X(INT(1, 1e6), save_every, "run.save_every", "1", "entries", 0, \
      "Entries of each fragment from one save of the private state to the next at due points. A replica that is killed resumes from its last save.", \
      .applies_when = "swarm.consensus = log") \
    X(CHOICE(dl_policy), roster, "run.roster", "trusted", "", 0, \
      "Rule of admission to a new run: any replica that reaches the store (trusted), or replicas with keys that sign (open, invited, closed). See docs/security.md.", \
      .needs = "swarm.consensus = log") \
    X(PATH, members, "run.members", "", "path", 0, \
      "File of the members of a new run with run.roster = closed, one \"NAME KEY\" a line; diloco id prints a KEY.") \
    X(PATH, committers, "run.committers", "", "path", 0, \
      "File of the keys that may close entries of a new run. Default: every key of a closed roster, otherwise the owner's key.") \
    X(PATH, key, "run.key", "", "path", 0, \
      "Secret key of this machine. Default: ~/.config/diloco/key.pem, created when it is missing.") \
    X(PATH, invitation, "run.invitation", "", "path", 0, \
      "File of invitations to a run, one a line for one replica each; diloco invite prints them.") \
    X(PATH, record, "run.record", "", "path", 0, \
      "File to which the record (JSON lines) of local replicas is appended, in addition to the store.") \
    X(PATH, track, "run.track", "", "", 0, \
      "Where local replicas draw their curves:" DL_TRACKERS(DL_TRACKER_FORM) " or nowhere (the default).") \
    X(PATH, notify, "run.notify", "", "", 0, \
      "Program or webhook (URL) that is called when a replica is lost, the run stalls, diverges, cannot reach its store, or is complete; env:NAME takes it from a variable. Default: none.") \
    X(BOOL, trace_protocol, "run.trace_protocol", "false", "", 0, \
      "Whether each move of a replica's protocol state machine is a line of its log, which train, join and replica print.", \
      .needs = "swarm.consensus = log") \
    X(INT(0, 9e15), seed, "run.seed", "1", "", DL_OPTION_AGREE, \
      "Seed of every random draw: initial parameters and order of samples.", \
      .alias = "server.random_seed", \
      .example = "7") \
    X(INT(1, 65536), replicas, "run.replicas", "1", "replicas", DL_OPTION_AGREE, \
      "Number of replicas that the first entries wait for; the training data is split into this many shards.", \
      .example = "4") \
    X(INT(0, 1024), local_replicas, "run.local_replicas", "0", "replicas", 0, \
      "Replicas to run on this machine; 0: all of run.replicas.") \
    X(INT(1, 65536), min_replicas, "run.min_replicas", "1", "replicas", DL_OPTION_AGREE, \
      "Fewest replicas with which the first entry may close after run.start_timeout.", \
      .applies_when = "swarm.consensus = log") \
    X(REAL(0, 1e9), start_timeout_s, "run.start_timeout", "600", "seconds", DL_OPTION_AGREE, \
      "Seconds that the first entry waits for run.replicas; after that run.min_replicas are enough.") \
    X(REAL(0, 1e9), deadline_s, "run.deadline", "0", "seconds", DL_OPTION_AGREE, \
      "Seconds that an entry waits after this replica's own upload; 0: derived from measured times and run.patience.", \
      .applies_when = "server.diloco.schedule != async", \
      .why = "each contribution is an entry of its own, and no replica waits") \
    X(REAL(0, 1), quorum, "run.quorum", "0.5", "of the roster", DL_OPTION_AGREE, \
      "Share of the roster that must have contributed for a commit after the deadline, with run.on_missing = commit_partial.", \
      .applies_when = "run.on_missing = commit_partial") \
    X(INT(0, 65536), close_at, "run.close_at", "0", "contributions", DL_OPTION_AGREE, \
      "Contributions with which an entry closes without waiting for the rest; 0: all of the roster.", \
      .applies_when = "server.diloco.schedule != async", \
      .why = "each contribution is an entry of its own, and no replica waits", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1e9), grace_s, "run.grace", "0", "seconds", DL_OPTION_AGREE, \
      "Seconds to wait for more contributions after the first run.close_at have arrived.", \
      .applies_when = "run.close_at", \
      .why = "otherwise an entry waits for all contributions") \
    X(REAL(0, 0.999), grace_slack, "run.grace_slack", "0", "of the slack", DL_OPTION_AGREE, \
      "The same wait as a share of the time that the overlap leaves (gamma of 2604.21428).") \
    X(REAL(0.05, 1e9), patience_s, "run.patience", "60", "seconds", DL_OPTION_AGREE, \
      "Seconds after which a replica whose heartbeat has not changed counts as silent. A deadline is at least a sixth of it.") \
    X(REAL(0.01, 1e6), heartbeat_s, "run.heartbeat", "5", "seconds", DL_OPTION_AGREE, \
      "Seconds between two heartbeats; at most a third of run.patience.") \
    X(CHOICE(dl_missing_choice), on_missing, "run.on_missing", "wait", "", DL_OPTION_AGREE, \
      "What happens to an entry at its deadline: wait for the missing replicas, commit without them, or abort it.", \
      .example = "commit_partial", \
      .applies_when = "server.diloco.schedule != async", \
      .why = "each contribution is an entry of its own, and no replica waits", \
      .needs = "swarm.consensus = log") \
    X(CHOICE(dl_uncounted_choice), on_uncounted, "run.on_uncounted", "adopt", "", DL_OPTION_AGREE, \
      "Action of a replica after an entry that did not count it: adopt the result, or keep training from its own parameters.", \
      .applies_when = "server.diloco.overlap = steps", \
      .why = "with another overlap the next round has begun when an entry is decided", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 0.999999), drop, "run.drop", "0", "of contributions", DL_OPTION_AGREE, \
      "Probability that an entry ignores a contribution as if it were lost; a fault for experiments.", \
      .needs = "swarm.consensus = log") \
    X(CHOICE(dl_retain_choice), retain, "run.retain", "recent", "", DL_OPTION_AGREE, \
      "Objects that are kept: those that a joining replica needs (recent), or every contribution and snapshot for a full audit (all).", \
      .applies_when = "swarm.consensus = log") \
    X(TEXT(dl_config_name, 31), single_committer, "run.single_committer", "", "replica", DL_OPTION_AGREE, \
      "The one replica that closes entries, for stores that cannot create a name exactly once; diloco takeover changes it.", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1e9), snapshot_s, "run.snapshot_every", "600", "seconds", DL_OPTION_AGREE, \
      "Longest time in seconds between two snapshots. One is also due when contributions exceed twice its size.", \
      .applies_when = "swarm.consensus = log") \
    X(REAL(0, 1e9), store_timeout_s, "run.store_timeout", "600", "seconds", 0, \
      "Seconds that a store without an answer is tried again before the replica stops.") \
    X(INT(1, 16), fetchers, "run.fetchers", "4", "contributions", 0, \
      "Contributions read at a time, each over connections of its own. Default with run.peers: all, up to 16.", \
      .applies_when = "swarm.consensus = log") \
    X(BOOL, peers, "run.peers", "false", "", 0, \
      "Whether contributions are also exchanged directly between members; the store keeps them in any case.", \
      .needs = "swarm.consensus = log") \
    X(PATH, peers_listen, "run.peers_listen", "127.0.0.1:0", "HOST:PORT", 0, \
      "Address at which this machine answers members over TLS, with run.peers; port 0: any free port.", \
      .applies_when = "run.peers") \
    X(PATH, peers_address, "run.peers_address", "", "HOST:PORT", 0, \
      "Address at which members reach this machine, with run.peers. Default: where it listens.", \
      .applies_when = "run.peers") \
    X(TEXT(dl_config_path, 63), link, "run.link", "", "rate,delay,loss", 0, \
      "Rate, delay and loss of a slower link to simulate in front of the store: 10mbit,100ms,1%. Default: none.") \
    X(REAL(0, DL_BIG), alone_tokens_per_s, "run.alone_tokens_per_s", "0", "tokens/s", 0, \
      "Tokens a second that a replica of this machine reaches without exchange; the record then has throughput_ratio. 0: unknown.") \
    X(INT(0, 256), threads, "run.threads", "0", "threads", 0, \
      "Threads of each replica; 0: this machine's cores divided by its replicas.", \
      .example = "2") \
    X(INT(0, 1e6), restarts, "run.restarts", "3", "times", 0, \
      "Times that a local replica that was killed is started again.") \
    X(CHOICE(dl_spool_choice), spool, "run.spool", "auto", "", 0, \
      "Place where contributions of other replicas wait for the outer step.", \
      .applies_when = "swarm.consensus = log") \
    X(INT(1, 1e9), spool_mb, "run.spool_mb", "1024", "MiB", 0, \
      "Size in MiB of all members' contributions above which run.spool = auto uses the disk. More than 64 clients always use it.", \
      .applies_when = "swarm.consensus = log") \
    X(CHOICE(dl_offload_choice), offload, "run.offload", "none", "", 0, \
      "Place of the outer state of fragments that are not being exchanged: host memory (none), or a file (disk). memory is refused, because outer state is never on a device.", \
      .applies_when = "swarm.consensus = log") \
    X(CHOICE(dl_role_choice), role, "run.role", "both", "", 0, \
      "Work of this machine's processes in a federated run: train clients (worker), close entries (server), or both.", \
      .applies_when = "clients.total_clients") \
    X(PATH, base_path, "general.base_path", "runs", "path", 0, \
      "Parent folder of runs without run.store: the run of run.toml is stored in BASE_PATH/run.")
// clang-format on

DL_RUN_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(run, DL_RUN_OPTIONS)

#endif
