/* about.c - reports the build's version and features, and the machine. */
#include "base/thread.h"
#include "tensor/isa.h"
#include <diloco/diloco.h>

const char *diloco_version(void)
{
    return DILOCO_VERSION;
}

int diloco_version_number(void)
{
    return DILOCO_VERSION_NUMBER;
}

const char *diloco_isa(void)
{
    return dl_isa_name(dl_isa_chosen());
}

int diloco_cores(void)
{
    return dl_cores();
}
