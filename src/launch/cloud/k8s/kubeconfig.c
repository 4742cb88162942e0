/* kubeconfig.c - see kubeconfig.h. `kubectl config view --raw --minify --flatten` prints the
 * current context with all files that it names, so this file reads no YAML and searches for no
 * file. Texts with credentials are overwritten before they are freed. */
#include "launch/cloud/k8s/kubeconfig.h"

#include "launch/command.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of a file or of kubectl's output, and words of a program for credentials. */
enum { FILE_BYTES = 1 << 20, EXEC_WORDS = 64 };
/* Where Kubernetes mounts the service account (Kubernetes, "Accessing the Kubernetes API from a
 * Pod"). */
#define POD_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount/"
#define NAME       "Kubernetes"

/* ---- in a pod */

/* The first line of a file; false if it is empty or cannot be read. The file may hold a token, so
 * its text is overwritten. */
static bool read_text(char *out, size_t cap, const char *path)
{
    dl_buf text;
    dl_buf_init(&text, FILE_BYTES);
    out[0] = '\0';
    if (!dl_file_read(&text, path) && dl_buf_str(&text))
        snprintf(out, cap, "%.*s", (int)strcspn(dl_buf_str(&text), "\r\n"), dl_buf_str(&text));
    if (text.data) explicit_bzero(text.data, text.cap);
    dl_buf_deinit(&text);
    return out[0];
}

/* Kubernetes sets the variable and mounts the token in every pod with a service account. */
static bool is_pod(void)
{
    return getenv("KUBERNETES_SERVICE_HOST") && access(POD_FOLDER "token", R_OK) == 0;
}

/* The address is in variables of every pod. An IPv6 address needs brackets in a URL. Kubernetes
 * renews the token in the file, so each client reads it again. */
static diloco_status open_in_pod(dl_rest *rest, const dl_launch_spec *spec)
{
    char base[512];
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    const bool v6 = strchr(host, ':');
    snprintf(base, sizeof base, "https://%s%.255s%s:%.8s", v6 ? "[" : "", host, v6 ? "]" : "",
             port ? port : "443");
    DL_TRY(dl_rest_init(rest, spec, NAME, base));
    rest->ca_file = POD_FOLDER "ca.crt";
    read_text(rest->project, sizeof rest->project, POD_FOLDER "namespace");
    if (read_text(rest->who.token, sizeof rest->who.token, POD_FOLDER "token")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "k8s: " POD_FOLDER "token is empty");
}

/* ---- kubectl's context */

/* Append the bytes of a base64 member to `out`; none if it is absent. EVP_DecodeBlock counts
 * padding as bytes, so it is subtracted. The member may be a private key, so its copy is
 * overwritten. */
static diloco_status decode(dl_buf *out, dl_json_value object, const char *path)
{
    const dl_json_value value = dl_rest_at(object, path);
    const size_t cap = (size_t)(value.end - value.at) + 4;
    if (value.type != DL_JSON_STRING) return DILOCO_OK;
    char *text = malloc(cap);
    if (!text) return dl_fail(DILOCO_ENOMEM, "out of memory for a certificate");
    diloco_status status = dl_json_as_str(text, cap, value);
    if (!status) status = dl_buf_reserve(out, cap);
    const size_t len = status ? 0 : strlen(text);
    const int n = status ? 0 : EVP_DecodeBlock(out->data, (unsigned char *)text, (int)len);
    if (!status && (n < 0 || len < 4))
        status = dl_fail(DILOCO_EPROTO, "k8s: %s of kubectl's context is not base64", path);
    if (!status) out->len = (size_t)n - (text[len - 1] == '=') - (text[len - 2] == '=');
    explicit_bzero(text, cap);
    free(text);
    return status;
}

/* Put the certificate of the cluster's authority into a file of memory, since the HTTP client reads
 * a path. The path names the descriptor, so that stays open: until the next call or the end of this
 * process. */
static diloco_status place_authority(dl_rest *rest, dl_json_value cluster)
{
    static char path[32];
    static int fd = -1;
    dl_buf pem;
    dl_buf_init(&pem, FILE_BYTES);
    diloco_status status = decode(&pem, cluster, "certificate-authority-data");
    if (!status && pem.len) {
        if (fd >= 0) close(fd);
        fd = memfd_create("authority", MFD_CLOEXEC);
        if (fd < 0 || write(fd, pem.data, pem.len) != (ssize_t)pem.len)
            status = dl_fail(DILOCO_EIO, "k8s: no memory file for the cluster's authority");
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        rest->ca_file = path;
    }
    dl_buf_deinit(&pem);
    return status;
}

/* The words "env NAME=VALUE… COMMAND ARG…" for user.exec of a context. The variable
 * KUBERNETES_EXEC_INFO gives such a program the version of the API and that there is no person
 * to answer questions (client-go credential plugins). The caller frees the words, also after an
 * error. */
static diloco_status exec_words(char **words, dl_json_value exec)
{
    char name[256], text[4096], value[3072];
    size_t n = 0;
    bool whole = (words[n++] = strdup("env")) != NULL;
    whole = whole && (words[n++] = strdup("KUBERNETES_EXEC_INFO={\"apiVersion\":\"client."
                                          "authentication.k8s.io/v1\",\"kind\":\"ExecCredential\","
                                          "\"spec\":{\"interactive\":false}}"));
    for (dl_json_iter it = dl_json_each(dl_json_get(exec, "env"));
         whole && n < EXEC_WORDS && dl_json_next(&it);) {
        dl_rest_text(name, sizeof name, it.value, "name");
        dl_rest_text(value, sizeof value, it.value, "value");
        snprintf(text, sizeof text, "%s=%s", name, value);
        whole = (words[n++] = strdup(text)) != NULL;
    }
    dl_rest_text(text, sizeof text, exec, "command");
    if (whole && n < EXEC_WORDS) whole = (words[n++] = strdup(text)) != NULL;
    for (dl_json_iter it = dl_json_each(dl_json_get(exec, "args"));
         whole && n < EXEC_WORDS && dl_json_next(&it);) {
        DL_TRY(dl_json_as_str(text, sizeof text, it.value));
        whole = (words[n++] = strdup(text)) != NULL;
    }
    if (n == EXEC_WORDS) return dl_fail(DILOCO_EINVAL, "k8s: user.exec has too many words");
    return whole ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for user.exec");
}

/* Run the program for credentials, and take the token from its answer. */
static diloco_status run_exec(dl_rest *rest, dl_json_value exec)
{
    char *words[EXEC_WORDS + 1] = {NULL};
    dl_command_result result;
    dl_json_value response;
    diloco_status status = exec_words(words, exec);
    if (!status) {
        const dl_command_run run = {.argv = (const char *const *)words, .most = FILE_BYTES};
        status = dl_command_do(&result, &run);
    }
    for (char **word = words; *word; word++)
        free(*word);
    if (status) return status;
    if (result.exit_code)
        status = dl_fail(DILOCO_EINVAL,
                         "k8s: the program that kubectl's context names for "
                         "credentials ended with %d: %.200s",
                         result.exit_code, result.err);
    if (!status) status = dl_json_parse(&response, result.out.data, result.out.len);
    if (!status)
        status = dl_json_read_str(rest->who.token, sizeof rest->who.token,
                                  dl_json_get(response, "status"), "token");
    if (result.out.data) explicit_bzero(result.out.data, result.out.cap);
    dl_buf_deinit(&result.out);
    return status;
}

/* --minify leaves one element in each list. */
static dl_json_value first_of(dl_json_value root, const char *list, const char *member)
{
    dl_json_iter it = dl_json_each(dl_json_get(root, list));
    return dl_json_next(&it) ? dl_json_get(it.value, member)
                             : (dl_json_value){.type = DL_JSON_MISSING};
}

/* Credentials may be a token, a certificate, or a program; a context has one of them, and the
 * others are absent. dl_rest_init clears `rest`, so it comes first. */
static diloco_status read_context(dl_rest *rest, const dl_launch_spec *spec, dl_json_value root)
{
    char server[DL_REST_BASE];
    const dl_json_value cluster = first_of(root, "clusters", "cluster");
    const dl_json_value user = first_of(root, "users", "user");
    if (!*dl_rest_text(server, sizeof server, cluster, "server"))
        return dl_fail(DILOCO_EINVAL, "k8s: kubectl has no current context: kubectl config "
                                      "use-context NAME chooses one, or set launch.endpoint");
    DL_TRY(dl_rest_init(rest, spec, NAME, server));
    dl_rest_text(rest->project, sizeof rest->project, first_of(root, "contexts", "context"),
                 "namespace");
    DL_TRY(place_authority(rest, cluster));
    DL_TRY(decode(&rest->cert, user, "client-certificate-data"));
    DL_TRY(decode(&rest->key, user, "client-key-data"));
    dl_rest_text(rest->who.token, sizeof rest->who.token, user, "token");
    const dl_json_value exec = dl_json_get(user, "exec");
    return exec.type == DL_JSON_OBJECT ? run_exec(rest, exec) : DILOCO_OK;
}

/* --raw is needed for credentials, and --flatten replaces names of files by their contents. The
 * context is one word with its option, so that no name of a context is an option itself. */
static diloco_status open_context(dl_rest *rest, const dl_launch_spec *spec)
{
    char context[sizeof(dl_config_path) + 16];
    const char *const name = spec->config->launch_context;
    const char *argv[] = {"kubectl",  "config",    "view",          "--raw",
                          "--minify", "--flatten", "--output=json", *name ? context : NULL,
                          NULL};
    dl_command_result result;
    dl_json_value root;
    if (!dl_command_exists("kubectl"))
        return dl_fail(
            DILOCO_EINVAL,
            *name ? "k8s: launch.context needs kubectl: install it, or run  "
                    "kubectl proxy  elsewhere and set launch.endpoint to its address"
                  : "k8s: this is no pod and there is no kubectl: install it, or run  kubectl "
                    "proxy  elsewhere and set launch.endpoint to its address");
    snprintf(context, sizeof context, "--context=%s", name);
    const dl_command_run run = {.argv = argv, .most = FILE_BYTES};
    DL_TRY(dl_command_do(&result, &run));
    diloco_status status =
        result.exit_code ? dl_fail(DILOCO_EINVAL, "k8s: kubectl config view: %.300s", result.err)
                         : dl_json_parse(&root, result.out.data, result.out.len);
    if (!status) status = read_context(rest, spec, root);
    if (result.out.data) explicit_bzero(result.out.data, result.out.cap);
    dl_buf_deinit(&result.out);
    return status;
}

/* A namespace is part of each path, so its characters must not change a path. It may come from the
 * book of launches. Names are DNS labels (Kubernetes, "Object Names and IDs"). */
static diloco_status check_namespace(const char *name)
{
    if (strlen(name) <= 63 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "launch.project = \"%.63s\": the name of a namespace has at most 63 lower-case "
                   "letters, digits and hyphens",
                   name);
}

/* launch.context comes before the service account of a pod. Without launch.project and a namespace
 * of the context the namespace is kubectl's own default, "default". */
diloco_status dl_kube_open(dl_rest *rest, const dl_launch_spec *spec)
{
    const char *given = spec->config->launch_project;
    diloco_status status;
    if (spec->config->launch_endpoint[0] || spec->dry)
        status = dl_rest_init(rest, spec, NAME, "https://kubernetes");
    else if (is_pod() && !spec->config->launch_context[0])
        status = open_in_pod(rest, spec);
    else
        status = open_context(rest, spec);
    if (*given || !rest->project[0])
        snprintf(rest->project, sizeof rest->project, "%s", *given ? given : "default");
    return status ? status : check_namespace(rest->project);
}
