/* overview.c - /metrics: counts of requests, and of the folders' content. */
#include "hub/server.h"

/* Bytes of one reply, a bound for a folder with very many runs. */
enum { TEXT_MAX = 16 << 20 };

dl_response dl_metrics_begin(dl_http_request *r)
{
    dl_hub *hub = r->hub;
    dl_buf out;
    dl_buf_init(&out, TEXT_MAX);
    diloco_status status = dl_metrics_write(&out, &hub->metrics, dl_events_count(&hub->events));
    if (!status) status = dl_holdings_write(&out, &hub->tally);
    dl_response reply = status
                            ? dl_refuse_failed(r, status)
                            : dl_response_text(200, "text/plain; version=0.0.4", out.data, out.len);
    dl_buf_deinit(&out);
    return reply;
}
