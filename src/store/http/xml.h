/* xml.h - an object store's XML answers, element by element, over expat.
 *
 * Bytes from outside: a document type, an element deeper than 16, a path longer than 200 bytes
 * or a text longer than 4095 is DILOCO_EPROTO, as is what is no XML. */
#ifndef DL_STORE_HTTP_XML_H
#define DL_STORE_HTTP_XML_H

#include "base/buf.h"

/* The end of an element: its path below the root ("Contents/Key"; "" is the root itself, names
 * without their namespace prefix) and its own text, blanks around it removed. A status other than
 * OK ends the walk and is returned. */
typedef diloco_status (*dl_xml_fn)(void *context, const char *path, const char *text);

/* `what` is for the error text. The first element's name must be `root`; NULL: any. */
DL_MUST_CHECK diloco_status dl_xml_walk(const void *data, size_t len, const char *root,
                                        dl_xml_fn element, void *context, const char *what);

#endif
