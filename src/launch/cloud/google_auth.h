/* google_auth.h - a bearer token of Google from application default credentials. */
#ifndef DL_LAUNCH_CLOUD_GOOGLE_AUTH_H
#define DL_LAUNCH_CLOUD_GOOGLE_AUTH_H

#include "launch/cloud/rest.h"

/* Fill the bearer token of `rest`, and its project where that is empty and the credentials name
 * one. GOOGLE_APPLICATION_CREDENTIALS names a file; the file that  gcloud auth application-default
 * login writes is next; the service account of this machine is last. The file holds a service
 * account's key or a user's refresh token. DILOCO_EINVAL: there are no credentials, or the file has
 * another type. The token is kept until a minute before it expires. */
DL_MUST_CHECK diloco_status dl_google_token(dl_rest *rest);

#endif
