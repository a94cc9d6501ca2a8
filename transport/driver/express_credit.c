/* What Endpoint.consumed does where no acknowledgement is due, and what Endpoint.base says; on the very objects of transport/protocol.
   Everything else is left to Python, and nothing has changed. */

#define PY_SSIZE_T_CLEAN
#include "express_numbers.h"

int express_consumed(const Express *express, PyObject *src, PyObject *nbytes, PyObject *messages)
{
    PyObject *link = link_of(express, src), *common = GET(express->endpoint, ENDPOINT__common);
    if (!link || !IS(common, COMMON) || GET(link, LINK_window) == GET(express->endpoint, ENDPOINT__self_window)) return 0;
    PyObject *ledger = GET(link, LINK_ledger);
    Reading reading = {0};
    long long charge = value(&reading, nbytes) + express->overhead * value(&reading, messages);
    long long unconsumed = NUMBER(ledger, LEDGER_unconsumed) - charge;
    long long edge = NUMBER(ledger, LEDGER_delivered_charge) + NUMBER(ledger, LEDGER_credit) - unconsumed;
    if (reading.bad || edge - NUMBER(ledger, LEDGER_offered) >= NUMBER(common, COMMON_update_bytes)) return 0;
    NUMBER(ledger, LEDGER_unconsumed) = unconsumed;
    return 1;
}

PyObject *express_base(const Express *express, PyObject *dst)
{
    PyObject *link = link_of(express, dst);
    return link ? PyLong_FromLongLong(NUMBER(GET(link, LINK_window), WINDOW_base)) : NULL;
}
