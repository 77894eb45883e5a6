// A model's published config.json (of the transformers library) -> struct model.
#ifndef MOE_CONFIG_H
#define MOE_CONFIG_H
#include "models.h"

#include <stddef.h>

// The kind of model is `model_type`, or where that is missing or unknown, the first of `architectures`; where both are,
// the object `text_config` is looked into. A field that is missing has the default of that kind's configuration class.
// out->name: the kind; every pointer of out is to constants. false: `why` names the field (400 bytes hold it all).
bool model_from_config(const char *json, size_t n, struct model *out, char *why, size_t why_size);
#endif
