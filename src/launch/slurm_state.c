/* slurm_state.c - see slurm_state.h. */
#include "launch/slurm_state.h"

#include "launch/slurm_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define HELD "held; scontrol release lets it wait for a machine again"

/* Slurm's states, and the flags that squeue shows in their place (squeue(1), "JOB STATE CODES";
 * "Job State Codes" of Slurm 24.11), each with a sentence that follows its word. Whether a FAILED
 * job was killed is decided by dl_slurm_set_state. */
static const struct {
    const char *slurm;
    dl_job_state state;
    const char *sentence;
} states[] = {
    {"PENDING", DL_JOB_PENDING, ""},
    {"REQUEUED", DL_JOB_PENDING, "Slurm starts it again"},
    {"REQUEUE_FED", DL_JOB_PENDING, "another cluster of the federation gave it back"},
    {"REQUEUE_HOLD", DL_JOB_PENDING, HELD},
    {"SPECIAL_EXIT", DL_JOB_PENDING, HELD},
    {"RESV_DEL_HOLD", DL_JOB_PENDING, HELD},
    {"CONFIGURING", DL_JOB_STARTING, "its node starts"},
    {"RUNNING", DL_JOB_RUNNING, ""},
    {"COMPLETING", DL_JOB_RUNNING, "it ends, and Slurm cleans up"},
    {"SUSPENDED", DL_JOB_RUNNING, "Slurm has suspended it"},
    {"STOPPED", DL_JOB_RUNNING, "Slurm has stopped its processes, and keeps its node"},
    {"SIGNALING", DL_JOB_RUNNING, "Slurm sends it a signal"},
    {"STAGE_OUT", DL_JOB_RUNNING, "Slurm copies files of the burst buffer"},
    {"RESIZING", DL_JOB_RUNNING, "its size changes"},
    {"COMPLETED", DL_JOB_SUCCEEDED, ""},
    {"FAILED", DL_JOB_FAILED, ""},
    {"TIMEOUT", DL_JOB_FAILED, "its time limit is over"},
    {"OUT_OF_MEMORY", DL_JOB_FAILED, "it used more than launch.memory"},
    {"DEADLINE", DL_JOB_FAILED, "its deadline is over"},
    {"CANCELLED", DL_JOB_CANCELLED, ""},
    {"NODE_FAIL", DL_JOB_LOST, "its node failed"},
    {"PREEMPTED", DL_JOB_LOST, "another job has its node"},
    {"BOOT_FAIL", DL_JOB_LOST, "its node did not start"},
    {"REVOKED", DL_JOB_LOST, "another cluster of the federation has it"},
};
enum { N_STATES = sizeof states / sizeof *states };

/* The state of a job that ended by its own exit code: 0 to 255, from 129 on a signal. A shell
 * reports a signal so. */
void dl_slurm_set_ended(dl_job *job, int code)
{
    if (code == diloco_exit_code(DILOCO_EINTERRUPTED))
        dl_job_set(job, DL_JOB_LOST, code, "stopped by its machine, state saved");
    else if (code > 128 && code <= 128 + SIGRTMAX)
        dl_job_set(job, DL_JOB_LOST, -1, "killed by signal %d (%s)", code - 128,
                   strsignal(code - 128));
    else
        dl_job_set(job, code ? DL_JOB_FAILED : DL_JOB_SUCCEEDED, code, "exit code %d", code);
}

/* A wait status as Slurm prints it, as an exit code; see wait(2). */
static int code_of(const char *status)
{
    const long how = strtol(status, NULL, 10);
    const int signal = (int)(how & 127);
    return signal ? 128 + signal : (int)(how >> 8 & 255);
}

/* Is the exit code in the script's file that of the job? A replica that saves its state at the
 * limit of a partition ends by itself. At launch.timeout it has failed. */
static bool ends_by_itself(const dl_launch_spec *spec, const char *state)
{
    return strcmp(state, "FAILED") == 0 || strcmp(state, "COMPLETED") == 0 ||
           (strcmp(state, "TIMEOUT") == 0 && spec->config->launch_timeout_s == 0);
}

/* The row of a word of Slurm; N_STATES if this version does not know it. */
static size_t row_of(const char *word)
{
    size_t i = 0;
    while (i < N_STATES && strcmp(states[i].slurm, word) != 0)
        i++;
    return i;
}

bool dl_slurm_read_state(dl_job_state *out, const char *word)
{
    const size_t i = row_of(word);
    if (i < N_STATES) *out = states[i].state;
    return i < N_STATES;
}

/* Set the message of a task that runs, or that has its node: "on n1", the number of requeues, and
 * the sentence. */
static void set_running(dl_job *job, const dl_slurm_task *q, const char *sentence)
{
    const char *name = q->field[DL_SLURM_STATE], *restarts = q->field[DL_SLURM_RESTARTS];
    const bool again = strcmp(restarts, "0") != 0;
    dl_job_set(job, DL_JOB_RUNNING, -1, "on %.100s%s%.10s%s%s%s%s", q->field[DL_SLURM_NODES],
               again ? ", requeued by Slurm: restart " : "", again ? restarts : "",
               *sentence ? "; " : "", *sentence ? name : "", *sentence ? ": " : "", sentence);
}

/* The sentence for a reason of scontrol hold, whose task stays PENDING; "" for another reason. */
static const char *held_by(const char *reason)
{
    if (strcmp(reason, "JobHeldUser") == 0) return HELD;
    return strcmp(reason, "JobHeldAdmin") == 0 ? "held by an administrator; scontrol release, by "
                                                 "one, lets it wait for a machine again"
                                               : "";
}

/* Set the message of a task that waits. Slurm's reason of one that is PENDING is a word that a
 * person can look up. "None" is no reason. */
static void set_waiting(dl_job *job, dl_job_state state, const dl_slurm_task *q,
                        const char *sentence)
{
    const char *reason = q->field[DL_SLURM_REASON];
    const bool has_reason = *reason && strcmp(reason, "None") != 0;
    if (!*sentence && *held_by(reason))
        dl_job_set(job, state, -1, "%s: %s", reason, held_by(reason));
    else if (!*sentence)
        dl_slurm_set_waiting(job, state, reason);
    else
        dl_job_set(job, state, -1, "%s: %s%s%.100s%s", q->field[DL_SLURM_STATE], sentence,
                   has_reason ? " (" : "", has_reason ? reason : "", has_reason ? ")" : "");
}

void dl_slurm_set_state(const dl_launch_spec *spec, dl_job *job, const dl_slurm_task *q)
{
    const char *name = q->field[DL_SLURM_STATE];
    const int written = dl_slurm_exit_of(spec, job, atoi(q->field[DL_SLURM_RESTARTS]));
    const int code = code_of(q->field[DL_SLURM_STATUS]);
    const size_t i = row_of(name);
    job->silent = false;
    if (i == N_STATES) /* it counts as running until launch.lost_after */
        dl_job_set_silent(job, "Slurm reports the unknown state %.60s", name);
    else if (written >= 0 && ends_by_itself(spec, name))
        dl_slurm_set_ended(job, written);
    else if (strcmp(name, "FAILED") == 0 && !dl_slurm_has_folder(spec, job))
        dl_slurm_set_ended(job, code ? code : 1); /* 0: Slurm gave none */
    else if (strcmp(name, "TIMEOUT") == 0 && ends_by_itself(spec, name) &&
             !dl_slurm_has_folder(spec, job))
        dl_job_set_silent(job, "TIMEOUT; this machine has no folder %.100s with its exit code",
                          spec->dir);
    else if (strcmp(name, "FAILED") == 0)
        /* Its script was killed, or Slurm did not start it: it writes what the program ends with.
         */
        dl_job_set(job, DL_JOB_LOST, -1, "ended with %d before its script could report it", code);
    else if (dl_job_is_over(states[i].state))
        dl_job_set(job, states[i].state, -1, "%s%s%s", name, *states[i].sentence ? ": " : "",
                   states[i].sentence);
    else if (states[i].state == DL_JOB_RUNNING)
        set_running(job, q, states[i].sentence);
    else
        set_waiting(job, states[i].state, q, states[i].sentence);
}
