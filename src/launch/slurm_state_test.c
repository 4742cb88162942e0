/* slurm_state_test.c - the state of a replica for each state that Slurm documents: its base states,
 * and the flags that squeue shows in their place. */
#include "launch/slurm_state.h"

#include "check.h"
#include "job_outcome.h"
#include "scratch.h"

static const char run[] = "1f0c2ab9000000000000000000000000";
static const char *const none[] = {NULL};
static dl_config config;

/* Slurm's word, and the outcome of a poll (job_outcome.h). */
typedef struct row {
    const char *theirs, *outcome;
} row;

/* Set the state of rank 3 from its task on node n7, with this wait status and Slurm's reason. */
static void check_state(const row *r, const char *dir, const char *status, const char *reason)
{
    dl_job job;
    dl_slurm_task task = {.field = {"17_3", "diloco-1f0c2ab9-g1", "", "", "0", "n7", ""}};
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = dir, .env = none, .secrets = none};
    snprintf(task.field[DL_SLURM_STATE], sizeof task.field[0], "%s", r->theirs);
    snprintf(task.field[DL_SLURM_STATUS], sizeof task.field[0], "%s", status);
    snprintf(task.field[DL_SLURM_REASON], sizeof task.field[0], "%s", reason);
    dl_job_init(&job, run, 3, 1);
    dl_slurm_set_state(&spec, &job, &task);
    check_outcome(r->theirs, r->outcome, &job);
}

/* A folder of all replicas that holds one of rank 3, without an exit file. */
static const char *make_folder(const char *name)
{
    const char *dir = scratch_folder(name);
    dl_config_init(&config);
    scratch_write_below(dir, "diloco-1f0c2ab9-r3-g1/log", "");
    return dir;
}

static void write_exit(const char *dir, const char *text)
{
    scratch_write_below(dir, "diloco-1f0c2ab9-r3-g1/exit", text);
}

#define HELD "held; scontrol release lets it wait for a machine again"

TEST(each_state_of_a_task_that_is_not_over_has_its_state_and_a_sentence)
{
    static const row rows[] = {
        {"PENDING", "PENDING: Resources"},
        {"REQUEUED", "PENDING: REQUEUED: Slurm starts it again (Resources)"},
        {"REQUEUE_FED",
         "PENDING: REQUEUE_FED: another cluster of the federation gave it back (Resources)"},
        {"REQUEUE_HOLD", "PENDING: REQUEUE_HOLD: " HELD " (Resources)"},
        {"SPECIAL_EXIT", "PENDING: SPECIAL_EXIT: " HELD " (Resources)"},
        {"RESV_DEL_HOLD", "PENDING: RESV_DEL_HOLD: " HELD " (Resources)"},
        {"CONFIGURING", "STARTING: CONFIGURING: its node starts (Resources)"},
        {"RUNNING", "RUNNING: on n7"},
        {"COMPLETING", "RUNNING: on n7; COMPLETING: it ends, and Slurm cleans up"},
        {"SUSPENDED", "RUNNING: on n7; SUSPENDED: Slurm has suspended it"},
        {"STOPPED", "RUNNING: on n7; STOPPED: Slurm has stopped its processes, and keeps its node"},
        {"SIGNALING", "RUNNING: on n7; SIGNALING: Slurm sends it a signal"},
        {"STAGE_OUT", "RUNNING: on n7; STAGE_OUT: Slurm copies files of the burst buffer"},
        {"RESIZING", "RUNNING: on n7; RESIZING: its size changes"},
    };
    const char *dir = make_folder("waits");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_state(&rows[i], dir, "0", "Resources");
    check_state(&(row){"CONFIGURING", "STARTING: CONFIGURING: its node starts"}, dir, "0", "None");
    check_state(&(row){"REQUEUED", "PENDING: REQUEUED: Slurm starts it again"}, dir, "0", "");
}

/* scontrol hold leaves a task PENDING, with a reason. */
TEST(task_that_is_held_while_it_waits_says_how_it_is_released)
{
    const char *dir = make_folder("held");
    check_state(&(row){"PENDING", "PENDING: JobHeldUser: " HELD}, dir, "0", "JobHeldUser");
    check_state(&(row){"PENDING", "PENDING: JobHeldAdmin: held by an administrator; scontrol "
                                  "release, by one, lets it wait for a machine again"},
                dir, "0", "JobHeldAdmin");
    check_state(&(row){"REQUEUE_HOLD", "PENDING: REQUEUE_HOLD: " HELD " (JobHeldUser)"}, dir, "0",
                "JobHeldUser");
}

/* Without an exit file, as after a loss of the node. */
TEST(each_state_of_a_task_that_is_over_has_its_state_and_a_sentence)
{
    static const row rows[] = {
        {"COMPLETED", "SUCCEEDED: COMPLETED"},
        {"FAILED", "LOST, again: ended with 137 before its script could report it"},
        {"TIMEOUT", "FAILED: TIMEOUT: its time limit is over"},
        {"OUT_OF_MEMORY", "FAILED: OUT_OF_MEMORY: it used more than launch.memory"},
        {"DEADLINE", "FAILED: DEADLINE: its deadline is over"},
        {"CANCELLED", "CANCELLED: CANCELLED"},
        {"NODE_FAIL", "LOST, again: NODE_FAIL: its node failed"},
        {"PREEMPTED", "LOST, again: PREEMPTED: another job has its node"},
        {"BOOT_FAIL", "LOST, again: BOOT_FAIL: its node did not start"},
        {"REVOKED", "LOST, again: REVOKED: another cluster of the federation has it"},
    };
    const char *dir = make_folder("over");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_state(&rows[i], dir, "9", "None");
}

/* Slurm's state alone does not distinguish the end of the replica from that of its script, if it is
 * COMPLETED, FAILED or TIMEOUT. Of another end Slurm's state counts, whatever the file says. */
TEST(exit_file_decides_for_a_task_that_ended_by_itself_and_no_other)
{
    static const struct {
        const char *file;
        row row;
    } rows[] = {
        {"exit 0 0\n", {"COMPLETED", "SUCCEEDED: exit code 0"}},
        {"exit 3 0\n", {"FAILED", "FAILED: exit code 3"}},
        {"exit 4 0\n", {"FAILED", "FAILED, again: exit code 4"}},
        {"exit 130 0\n", {"FAILED", "LOST, again: stopped by its machine, state saved"}},
        {"exit 130 0\n", {"TIMEOUT", "LOST, again: stopped by its machine, state saved"}},
        {"exit 137 0\n", {"FAILED", "LOST, again: killed by signal 9 (Killed)"}},
        {"exit 0 0\n", {"CANCELLED", "CANCELLED: CANCELLED"}},
        {"exit 137 0\n",
         {"OUT_OF_MEMORY", "FAILED: OUT_OF_MEMORY: it used more than launch.memory"}},
        {"exit 130 0\n", {"PREEMPTED", "LOST, again: PREEMPTED: another job has its node"}},
    };
    const char *dir = make_folder("ended");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_exit(dir, rows[i].file);
        check_state(&rows[i].row, dir, "0", "None");
    }
    CHECK_OK(dl_config_set(&config, "launch.timeout", "60", "test"));
    write_exit(dir, "exit 130 0\n");
    check_state(&(row){"TIMEOUT", "FAILED: TIMEOUT: its time limit is over"}, dir, "0", "None");
}

/* A machine without the folder has Slurm's wait status alone. */
TEST(machine_without_the_folder_takes_the_code_of_slurm)
{
    dl_config_init(&config);
    check_state(&(row){"FAILED", "FAILED: exit code 3"}, "/nowhere", "768", "None");
    check_state(&(row){"FAILED", "FAILED: exit code 1"}, "/nowhere", "0", "None");
    check_state(&(row){"FAILED", "LOST, again: killed by signal 9 (Killed)"}, "/nowhere", "9",
                "None");
    check_state(&(row){"TIMEOUT", "silent: TIMEOUT; this machine has no folder /nowhere with its "
                                  "exit code"},
                "/nowhere", "0", "None");
}

/* The last two are flags that squeue does not show, so they are no states. */
TEST(unknown_state_is_named_and_not_guessed)
{
    static const row rows[] = {
        {"HIBERNATING", "silent: Slurm reports the unknown state HIBERNATING"},
        {"RUN", "silent: Slurm reports the unknown state RUN"},
        {"running", "silent: Slurm reports the unknown state running"},
        {"LAUNCH_FAILED", "silent: Slurm reports the unknown state LAUNCH_FAILED"},
        {"EXPEDITING", "silent: Slurm reports the unknown state EXPEDITING"},
    };
    const char *dir = make_folder("unknown");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_state(&rows[i], dir, "0", "None");
}

TEST_MAIN(each_state_of_a_task_that_is_not_over_has_its_state_and_a_sentence,
          each_state_of_a_task_that_is_over_has_its_state_and_a_sentence,
          task_that_is_held_while_it_waits_says_how_it_is_released,
          exit_file_decides_for_a_task_that_ended_by_itself_and_no_other,
          machine_without_the_folder_takes_the_code_of_slurm,
          unknown_state_is_named_and_not_guessed)
