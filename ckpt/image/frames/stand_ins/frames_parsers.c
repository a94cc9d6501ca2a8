/* Parsers of JSON in C that call hooks of the program for each object (json.loads with object_hook): calls with Recorders, as in
 * frames_callbacks.c. In another process the same text is parsed again by a parser with such hooks.
 */
#include "folds.h"

#if FRAMES_SUPPORTED

enum { HOOKS = 5, OF_OBJECTS = 2 };
static const char *const hooks[HOOKS] = {"object_hook", "object_pairs_hook", "parse_float", "parse_int", "parse_constant"};
static PyObject *parser_type, *namespace_type, *names_of_hooks[OF_OBJECTS];

/* A parser of JSON like this one, with Recorders for its hooks in Python, which are added to a list. */
PyObject *parser_with(PyObject *parser, Fold *fold, PyObject *recorders)
{
    PyObject *values = PyDict_New(), *nothing = PyTuple_New(0), *strict = PyObject_GetAttrString(parser, "strict"), *context = NULL;
    int failed = values == NULL || nothing == NULL || strict == NULL || parser_type == NULL || PyDict_SetItemString(values, "strict", strict) < 0;
    for (int i = 0; !failed && i < HOOKS; i++) {
        PyObject *hook = PyObject_GetAttrString(parser, hooks[i]);
        PyObject *used = hook && is_in_python(hook) ? callback_recorder(hook, fold) : Py_XNewRef(hook);
        failed = used == NULL || PyDict_SetItemString(values, hooks[i], used) < 0
                 || (used != hook && PyList_Append(recorders, used) < 0);
        Py_XDECREF(used);
        Py_XDECREF(hook);
    }
    if (!failed)
        context = PyObject_Call(namespace_type, nothing, values);
    PyObject *made = context ? PyObject_CallOneArg(parser_type, context) : NULL;
    Py_XDECREF(context);
    Py_XDECREF(strict);
    Py_XDECREF(nothing);
    Py_XDECREF(values);
    if (made == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "parsers of JSON are not known here");
    return made;
}

static ternaryfunc parse_before;

/* Its text cannot change, and what its hooks have returned is stored, not worked with. */
static PyObject *our_parse(PyObject *parser, PyObject *args, PyObject *keywords)
{
    PyObject *function = NULL;
    for (int i = 0; function == NULL && i < OF_OBJECTS; i++) {
        function = PyObject_GetAttr(parser, names_of_hooks[i]);
        if (function == NULL)
            return NULL;
        if (!is_in_python(function))
            Py_CLEAR(function);
    }
    int is_usual = function != NULL && keywords == NULL && PyTuple_GET_SIZE(args) == 2
                   && PyUnicode_CheckExact(PyTuple_GET_ITEM(args, 0)) && PyLong_CheckExact(PyTuple_GET_ITEM(args, 1));
    PyObject *result;
    if (is_usual)
        result = begin_callback(parser, &PyTuple_GET_ITEM(args, 0), 2, NULL, OF_PARSER, function);
    else
        result = parse_before(parser, args, keywords);
    Py_XDECREF(function);
    return result;
}

PyDoc_STRVAR(follow_parser_doc,
"follow_parser(make_scanner, namespace, /)\n\n"
"From now on, calls of parsers of this type of json with a function in Python for its objects are found by folds_of().  What they\n"
"do does not change.  namespace: types.SimpleNamespace.");
static PyObject *follow_parser(PyObject *module, PyObject *args)
{
    PyObject *type, *namespace;
    if (!PyArg_ParseTuple(args, "O!O:follow_parser", &PyType_Type, &type, &namespace) || PyType_Ready(&RecorderType) < 0)
        return NULL;
    if (parse_before != NULL || !frames_fit || ((PyTypeObject *)type)->tp_call == NULL)
        Py_RETURN_NONE;
    for (int i = 0; i < OF_OBJECTS; i++)
        if (!PyObject_HasAttrString(type, hooks[i]) || (names_of_hooks[i] = PyUnicode_InternFromString(hooks[i])) == NULL)
            Py_RETURN_NONE;
    parser_type = Py_NewRef(type);
    namespace_type = Py_NewRef(namespace);
    parse_before = ((PyTypeObject *)type)->tp_call;
    ((PyTypeObject *)type)->tp_call = our_parse;
    Py_RETURN_NONE;
}

PyMethodDef parser_functions[] = {
    {"follow_parser", follow_parser, METH_VARARGS, follow_parser_doc},
    {NULL, NULL, 0, NULL},
};

#endif /* FRAMES_SUPPORTED */
