/* web_data_none.c - web_data.h of a build without -DDILOCO_CLOUD, which speaks to no network. No
 * address is one of the web, so the other functions are never reached. */
#include "fetch/web_data.h"

bool dl_web_data_has(const char *url)
{
    (void)url;
    return false;
}

static diloco_status none(void)
{
    return dl_fail(DILOCO_EINVAL, "this build has no addresses of the web");
}

diloco_status dl_web_data_open(dl_web_data **out, const char *url)
{
    (void)url;
    *out = NULL;
    return none();
}

void dl_web_data_close(dl_web_data *data)
{
    (void)data;
}

void dl_web_data_abort(dl_web_data *data)
{
    (void)data;
}

diloco_status dl_web_data_list(dl_web_data *data, dl_found_fn found, void *context)
{
    (void)data, (void)found, (void)context;
    return none();
}

diloco_status dl_web_data_read(dl_web_data *data, const char *key, dl_web_position *at,
                               dl_sink sink)
{
    (void)data, (void)key, (void)at, (void)sink;
    return none();
}
