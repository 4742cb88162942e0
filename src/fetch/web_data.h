/* web_data.h - training data and models at addresses of the web, read in ranges
 * (store/http/web_read.h).
 *
 *     https://HOST/FOLDER/a.txt                          one object; HTTP has no listing
 *     hf://datasets/OWNER/NAME[@REVISION]/FOLDER/        a data set of Hugging Face, or one file
 *     hf://models/OWNER/NAME[@REVISION]/FOLDER/          a model of Hugging Face, or one file
 *
 * A prefix is such an address without its last component. HF_ENDPOINT and HF_TOKEN are those of
 * Hugging Face's own tools. The token is sent to that endpoint only. One thread at a time. */
#ifndef DL_FETCH_WEB_DATA_H
#define DL_FETCH_WEB_DATA_H

#include "store/http/web_read.h"

typedef struct dl_web_data dl_web_data;

/* Returns true if the address is one of these forms. http:// is one only on this machine: nothing
 * protects its bytes on the way. */
bool dl_web_data_has(const char *url);

/* dl_web_data_open opens a prefix, which has no slash at its end. Returns DILOCO_EINVAL if a
 * repository has no owner or name, and DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_web_data_open(dl_web_data **out, const char *url);
void dl_web_data_close(dl_web_data *data); /* NULL is fine */
/* Lets the call in progress and all later ones return DILOCO_ECLOSED. Any thread. */
void dl_web_data_abort(dl_web_data *data);

/* dl_web_data_list gives each file directly below the prefix to `found`, in the order of the
 * service. Names with other characters than letters, digits and ._=- are left out. Returns
 * DILOCO_EINVAL for an https:// prefix, and errors of dl_web_run. */
DL_MUST_CHECK diloco_status dl_web_data_list(dl_web_data *data, dl_found_fn found, void *context);

/* dl_web_data_read reads the object `key` of the prefix from at->begin to at->end. Returns
 * DILOCO_EINVAL if the key is not a name as above, DILOCO_ENOENT, and errors of dl_web_read. */
DL_MUST_CHECK diloco_status dl_web_data_read(dl_web_data *data, const char *key,
                                             dl_web_position *at, dl_sink sink);

#endif
