/* google_auth.h - a bearer token of Google from application default credentials. */
#ifndef DL_LAUNCH_CLOUD_GOOGLE_AUTH_H
#define DL_LAUNCH_CLOUD_GOOGLE_AUTH_H

#include "launch/cloud/rest.h"

/* dl_google_token fills in the bearer token of `rest`, and its project where that is empty and the
 * credentials name one. There are three sources, of which the first that exists counts. They are
 * the file that GOOGLE_APPLICATION_CREDENTIALS names, the file that `gcloud auth
 * application-default login` writes, and the service account of this machine.
 *
 * A file holds a service account's key or a user's refresh token. Returns DILOCO_EINVAL if there
 * are no credentials, or the file has another type. The token is kept until a minute before it
 * expires, for the whole process. One thread at a time. */
DL_MUST_CHECK diloco_status dl_google_token(dl_rest *rest);

#endif
