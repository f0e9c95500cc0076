/* The name under which documents of the original SDK know kv_apis.h. */
#ifndef KV_API_H
#define KV_API_H

#include "kv_apis.h"

#endif /* KV_API_H */
