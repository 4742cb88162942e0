/* export_npz.c - a file for numpy.load: a zip file of one .npy for each tensor, stored as it is.
 *
 *     for each tensor: local header | name | sizes in 64 bits | .npy header | data
 *     the directory: the same with places; its end, in the 64-bit form and the old one
 *
 * Sizes and places always are in the 64-bit form (PKWARE APPNOTE 4.3, 4.5.3), as numpy writes
 * them: no tensor is then too large. The .npy header is version 1.0 (numpy.lib.format). */
#include "interop/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* NPY_MAX: bytes of a .npy header at most, with room for DL_ST_DIMS sizes. NPY_ALIGN: numpy aligns
 * data to 64 bytes in the .npy file. NPY_FIXED: bytes before the dictionary. ZIP64: the version of
 * the zip format that has 64-bit sizes. DATE_1980: the zip format's first day. */
enum { NPY_MAX = 512, NPY_ALIGN = 64, NPY_FIXED = 10, ZIP64 = 45, DATE_1980 = 0x21 };

/* One file of the zip file. The directory at the end repeats these facts. */
typedef struct member {
    char name[300], npy[NPY_MAX];
    size_t npy_len, bytes, place; /* bytes: of header and data */
    uint32_t crc;
} member;

/* Returns numpy's name of a dtype, little-endian; NULL if numpy has no such type. */
static const char *numpy_type(const char *dtype)
{
    static const char *const types[][2] = {
        {"F32", "<f4"}, {"F16", "<f2"}, {"I64", "<i8"}, {"BOOL", "|b1"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i][0], dtype) == 0) return types[i][1];
    return NULL;
}

/* Refuses before anything is written. */
static diloco_status check_types(const dl_export *e)
{
    for (size_t i = 0; i < e->n; i++)
        if (!numpy_type(e->tensors[i].dtype))
            return dl_fail(DILOCO_EREFUSED, "%s is of type %s, which npz files do not have",
                           e->tensors[i].name, e->tensors[i].dtype);
    return DILOCO_OK;
}

/* Writes the .npy header: the magic, a u16 length and a Python dictionary, padded with blanks and
 * ended by a line break. A shape of one dimension needs its comma, as in Python. */
static void set_npy(member *m, const dl_st_tensor *t)
{
    char shape[DL_ST_DIMS * 24] = "";
    for (int d = 0; d < t->n_dims; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%zu,%s", t->shape[d],
                 d + 1 < t->n_dims ? " " : "");
    memset(m->npy, ' ', sizeof m->npy);
    int len = snprintf(m->npy + NPY_FIXED, NPY_MAX - NPY_FIXED,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                       numpy_type(t->dtype), shape);
    m->npy[NPY_FIXED + len] = ' ';
    m->npy_len = dl_size_round_up(NPY_FIXED + (size_t)len + 1, NPY_ALIGN);
    m->npy[m->npy_len - 1] = '\n';
    memcpy(m->npy, "\x93NUMPY\x01\x00", 8);
    m->npy[8] = (char)((m->npy_len - NPY_FIXED) & 0xff);
    m->npy[9] = (char)((m->npy_len - NPY_FIXED) >> 8);
}

/* Adds the common part of the local header and of the directory's entry. The sizes are all ones
 * here, which refers to the 64-bit form in `extra` bytes after the name. */
static void put_common(dl_pieces *p, const member *m, unsigned extra)
{
    dl_pieces_u(p, ZIP64, 2);
    dl_pieces_u(p, 1 << 11, 2); /* the name is UTF-8 */
    dl_pieces_u(p, 0, 2);       /* stored */
    dl_pieces_u(p, 0, 2);
    dl_pieces_u(p, DATE_1980, 2); /* the same model, the same bytes */
    dl_pieces_u(p, m->crc, 4);
    dl_pieces_u(p, UINT32_MAX, 4);
    dl_pieces_u(p, UINT32_MAX, 4);
    dl_pieces_u(p, strlen(m->name), 2);
    dl_pieces_u(p, extra, 2);
}

/* Adds a tensor's local header and data. m->place is the offset that the directory needs. */
static void put_member(dl_pieces *p, member *m, const dl_st_tensor *t, dl_span data)
{
    snprintf(m->name, sizeof m->name, "%s.npy", t->name);
    set_npy(m, t);
    m->place = p->bytes;
    m->bytes = m->npy_len + data.len;
    m->crc = (uint32_t)crc32_z(crc32_z(0, (const void *)m->npy, m->npy_len), data.data, data.len);
    dl_pieces_u(p, 0x04034b50, 4);
    put_common(p, m, 20);
    dl_pieces_add(p, m->name, strlen(m->name));
    dl_pieces_u(p, 1, 2);
    dl_pieces_u(p, 16, 2);
    dl_pieces_u(p, m->bytes, 8);
    dl_pieces_u(p, m->bytes, 8);
    dl_pieces_add(p, m->npy, m->npy_len);
    dl_pieces_put(p, data);
}

/* Adds the directory's entry of a member. */
static void put_entry(dl_pieces *p, const member *m)
{
    dl_pieces_u(p, 0x02014b50, 4);
    dl_pieces_u(p, ZIP64, 2);
    put_common(p, m, 28);
    dl_pieces_u(p, 0, 8); /* no comment, first disk, no attributes */
    dl_pieces_u(p, 0, 2);
    dl_pieces_u(p, UINT32_MAX, 4);
    dl_pieces_add(p, m->name, strlen(m->name));
    dl_pieces_u(p, 1, 2);
    dl_pieces_u(p, 24, 2);
    dl_pieces_u(p, m->bytes, 8);
    dl_pieces_u(p, m->bytes, 8);
    dl_pieces_u(p, m->place, 8);
}

/* Adds the directory's end in its 64-bit form, the locator of that, and the end in the old form.
 * The old form has all ones where the 64-bit form holds. */
static void put_end(dl_pieces *p, size_t begin, size_t n)
{
    size_t end = p->bytes;
    dl_pieces_u(p, 0x06064b50, 4);
    dl_pieces_u(p, 44, 8);
    dl_pieces_u(p, ZIP64, 2);
    dl_pieces_u(p, ZIP64, 2);
    dl_pieces_u(p, 0, 8);
    dl_pieces_u(p, n, 8);
    dl_pieces_u(p, n, 8);
    dl_pieces_u(p, end - begin, 8);
    dl_pieces_u(p, begin, 8);
    dl_pieces_u(p, 0x07064b50, 4); /* where that is */
    dl_pieces_u(p, 0, 4);
    dl_pieces_u(p, end, 8);
    dl_pieces_u(p, 1, 4);
    dl_pieces_u(p, 0x06054b50, 4);
    dl_pieces_u(p, 0, 4);
    dl_pieces_u(p, UINT16_MAX, 2);
    dl_pieces_u(p, UINT16_MAX, 2);
    dl_pieces_u(p, UINT32_MAX, 4);
    dl_pieces_u(p, UINT32_MAX, 4);
    dl_pieces_u(p, 0, 2);
}

static diloco_status write_npz(const dl_export *e)
{
    dl_pieces p;
    DL_TRY(check_types(e));
    member *members = calloc(dl_size_max(e->n, 1), sizeof *members);
    if (!members) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", e->n);
    dl_pieces_init(&p);
    for (size_t i = 0; i < e->n; i++)
        put_member(&p, &members[i], &e->tensors[i], e->data[i]);
    size_t begin = p.bytes;
    for (size_t i = 0; i < e->n; i++)
        put_entry(&p, &members[i]);
    put_end(&p, begin, e->n);
    diloco_status status = dl_pieces_write(&p, e->to);
    dl_pieces_deinit(&p);
    free(members);
    return status;
}

const dl_export_format dl_export_npz = {"npz", false, true, false, write_npz};
