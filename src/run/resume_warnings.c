/* resume_warnings.c - see resume_warnings.h. The shared model is not affected by what is reported
 * here: its arithmetic has a fixed order on every machine (B3), and runs on the host. */
#include "run/resume_warnings.h"

#include "base/run_kind.h"
#include "exchange/generations.h"
#include "tensor/isa.h"

#include <stdio.h>
#include <string.h>

const char *dl_run_device_name(const diloco_run *run)
{
    if (run->model.n_devices == 0) return "cpu";
    const char *name = run->model.known_devices[0]->name;
    return name ? name : "";
}

/* A device without a name is equal to any other. */
static bool are_two_devices(const char *a, const char *b)
{
    return a[0] && b[0] && strcmp(a, b) != 0;
}

/* Vector widths, the number of threads and the device's kernels decide the order of the trainer's
 * sums. */
static void warn_if_machine_differs(diloco_run *run, const dl_local_facts *facts)
{
    const dl_event_context c = {.replica = run->replica};
    const char *isa = dl_isa_name(dl_isa_chosen()), *device = dl_run_device_name(run);
    const int threads = dl_pool_size(run->pools.exchange);
    const bool moved = are_two_devices(facts->device, device);
    char text[512];
    if (!run->join.resumed ||
        (!moved && !strcmp(facts->isa, isa) && facts->threads == (uint32_t)threads))
        return;
    snprintf(text, sizeof text,
             "saved with %s%s%s, threads: %u, resumed with %s%s%s, threads: %d; the run is "
             "correct, but its training is not bit for bit the same",
             moved ? facts->device : "", moved ? ", " : "", facts->isa, facts->threads,
             moved ? device : "", moved ? ", " : "", isa, threads);
    dl_event_warn(&run->record, &c, "machine", text);
}

/* An earlier generation that reached an entry saved its state, unless it ran on another machine.
 * Replicas that contribute gradients, and logical clients, have no state here. */
static void warn_if_state_is_gone(diloco_run *run)
{
    const dl_event_context c = {.replica = run->replica};
    char text[sizeof run->folders.local_dir + 256];
    if (!run->local || run->join.resumed || !dl_run_is_restart(&run->self, &run->config) ||
        run->model.has_gradients || !dl_run_kind_of(&run->config)->processes ||
        dl_driver_facts_now(run->driver).entry == 0)
        return;
    snprintf(text, sizeof text,
             "replica %s has run before, and %s/%s holds no state of it: it joins with the shared "
             "model, and its inner moments are reset",
             run->replica, run->folders.local_dir, run->replica);
    dl_event_warn(&run->record, &c, "no_state", text);
}

void dl_run_warn_of_resume(diloco_run *run, const dl_local_facts *facts)
{
    warn_if_machine_differs(run, facts);
    warn_if_state_is_gone(run);
}
