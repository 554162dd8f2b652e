/* Turns plain rows into records, exactly as cdc/encode/json_transcoder.py does, in a quarter of the time.
 *
 * Whatever is not plain (an old row, a value that was not sent, a record above the limit, broken bytes, an encoder that
 * raises) is refused without an effect, and the caller takes it as if this module did not exist. So Python code alone
 * knows the rare forms and raises the errors. tests/property/test_plain_rows.py compares the bytes of both.
 *
 * Functions return 1 when done, and 0 when the row is refused or a Python error is set.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Offsets into a frame, as in cdc/encode/row_records.py, and sizes in bytes. */
enum { LSN_AT = 1, KIND_AT = 30, COUNT_AT = 31, VALUES_AT = 33, VALUE_HEADER = 5, DIGITS_MAX = 20 };

/* A larger row is refused, so that the buffers of a table stay small. */
enum { ROW_BYTES_MAX = 1 << 18 };

/* How a text becomes JSON; the numbers are those of cdc/encode/plain_rows.py. */
typedef enum { RAW, QUOTED, STRING, BOOLEAN, NUMBER, TIMESTAMP, TIMESTAMP_UTC, OTHER } Form;

typedef struct {
    const char *at;
    Py_ssize_t size;
} Text;

typedef struct {
    Form form;
    PyObject *encode; /* the encoder of Python, for texts that the form does not cover */
    Text member;      /* its name as JSON, with the colon */
    Py_ssize_t from, to; /* the value of the current row, in the buffer */
} Column;

/* The texts around the fields of a row in `source`, which are its LSN, its LSN again and its ordinal. */
enum { POSITION_TEXTS = 4 };

typedef struct {
    PyObject_HEAD
    PyObject *held; /* the arguments, which the texts and encoders belong to */
    PyObject *partitions;
    Column *columns;
    Py_ssize_t *key;
    Py_ssize_t column_count, key_count, limit;
    Text null, opening, rest, position[POSITION_TEXTS];
    char *buffer; /* the record under way: the value, then the key */
    Py_ssize_t size, room;
    char *unescaped; /* the current text of a COPY line, if it had escapes */
    Py_ssize_t unescaped_room;
} PlainRows;

/* The buffer. */

static int make_room(char **buffer, Py_ssize_t *room, Py_ssize_t needed) {
    if (needed <= *room)
        return 1;
    char *larger = PyMem_Realloc(*buffer, 2 * needed);
    if (larger == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    *buffer = larger;
    *room = 2 * needed;
    return 1;
}

static int put(PlainRows *self, const char *at, Py_ssize_t size) {
    if (!make_room(&self->buffer, &self->room, self->size + size))
        return 0;
    memcpy(self->buffer + self->size, at, size);
    self->size += size;
    return 1;
}

static int put_text(PlainRows *self, Text text) { return put(self, text.at, text.size); }

static int put_byte(PlainRows *self, char byte) { return put(self, &byte, 1); }

static int put_unsigned(PlainRows *self, uint64_t number) {
    char digits[DIGITS_MAX];
    int at = DIGITS_MAX;
    do
        digits[--at] = '0' + number % 10;
    while (number /= 10);
    return put(self, digits + at, DIGITS_MAX - at);
}

static int put_quoted(PlainRows *self, Text text) {
    return put_byte(self, '"') && put_text(self, text) && put_byte(self, '"');
}

/* Values. */

static int is_plain_string(Text text) {
    for (Py_ssize_t index = 0; index < text.size; index++) {
        unsigned char byte = text.at[index];
        if (byte < ' ' || byte > 0x7f || byte == '"' || byte == '\\')
            return 0;
    }
    return 1;
}

static int put_encoded(PlainRows *self, const Column *column, Text text) {
    PyObject *bytes = PyBytes_FromStringAndSize(text.at, text.size);
    PyObject *json = bytes ? PyObject_CallOneArg(column->encode, bytes) : NULL;
    int done = json != NULL && PyBytes_Check(json) && put(self, PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json));
    Py_XDECREF(bytes);
    Py_XDECREF(json);
    return done;
}

/* The first blank becomes a T; in UTC, the first +00 becomes +00:00. */
static int put_timestamp(PlainRows *self, Text text, int utc) {
    Py_ssize_t from = self->size;
    if (!put_quoted(self, text))
        return 0;
    char *blank = memchr(self->buffer + from, ' ', self->size - from);
    if (blank != NULL)
        *blank = 'T';
    for (Py_ssize_t at = from; utc && at + 3 <= self->size; at++)
        if (memcmp(self->buffer + at, "+00", 3) == 0) {
            if (!put(self, "   ", 3)) /* room */
                return 0;
            memmove(self->buffer + at + 6, self->buffer + at + 3, self->size - at - 6);
            memcpy(self->buffer + at + 3, ":00", 3);
            break;
        }
    return 1;
}

static int put_value(PlainRows *self, const Column *column, Text text) {
    switch (column->form) {
    case RAW:
        return put_text(self, text);
    case QUOTED:
        return put_quoted(self, text);
    case STRING:
        return is_plain_string(text) ? put_quoted(self, text) : put_encoded(self, column, text);
    case BOOLEAN:
        return text.size == 1 && *text.at == 't' ? put(self, "true", 4) : put(self, "false", 5);
    case NUMBER:
        return text.size && (unsigned char)text.at[text.size - 1] >= 'A' ? put_quoted(self, text)
                                                                         : put_text(self, text);
    case TIMESTAMP:
    case TIMESTAMP_UTC:
        return put_timestamp(self, text, column->form == TIMESTAMP_UTC);
    default:
        return put_encoded(self, column, text);
    }
}

/* Write one member of the row object; without a text it is null. */
static int put_member(PlainRows *self, Py_ssize_t index, const Text *text) {
    Column *column = &self->columns[index];
    if ((index && !put_byte(self, ',')) || !put_text(self, column->member))
        return 0;
    column->from = self->size;
    int done = text ? put_value(self, column, *text) : put_text(self, self->null);
    column->to = self->size;
    return done;
}

/* Records. */

/* Kafka's partitioner: murmur2 of org.apache.kafka.common.utils.Utils, without its sign. */
static uint32_t hash_of(const char *key, Py_ssize_t size) {
    const unsigned char *at = (const unsigned char *)key;
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28c ^ (uint32_t)size;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t k = m * (at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24);
        h = h * m ^ m * (k ^ k >> 24);
    }
    if (size == 3)
        h ^= at[2] << 16;
    if (size >= 2)
        h ^= at[1] << 8;
    if (size >= 1)
        h = m * (h ^ at[0]);
    h = m * (h ^ h >> 13);
    return (h ^ h >> 15) & 0x7fffffff;
}

static int put_key(PlainRows *self) {
    for (Py_ssize_t index = 0; index < self->key_count; index++) {
        const Column *column = &self->columns[self->key[index]];
        Py_ssize_t size = column->to - column->from;
        if (!put_byte(self, index ? ',' : '{') || !put_text(self, column->member) ||
            !make_room(&self->buffer, &self->room, self->size + size))
            return 0;
        memcpy(self->buffer + self->size, self->buffer + column->from, size);
        self->size += size;
    }
    return put_byte(self, '}');
}

/* Append the record whose value is complete, unless its key is in `drop` (which may be NULL). */
static int put_record(PlainRows *self, PyObject *drop, Py_ssize_t *count, Py_ssize_t *size) {
    Py_ssize_t value_size = self->size;
    if (value_size > self->limit || !put_key(self))
        return 0;
    Py_ssize_t key_size = self->size - value_size;
    PyObject *key = PyBytes_FromStringAndSize(self->buffer + value_size, key_size);
    int dropped = key && drop ? PySequence_Contains(drop, key) : 0;
    if (key == NULL || dropped) {
        Py_XDECREF(key);
        return dropped == 1;
    }
    PyObject *value = PyBytes_FromStringAndSize(self->buffer, value_size);
    PyObject *record = value ? PyTuple_Pack(3, key, value, Py_None) : NULL;
    uint32_t hash = hash_of(self->buffer + value_size, key_size);
    PyObject *records = PyList_GetItem(self->partitions, hash % PyList_GET_SIZE(self->partitions));
    int done = record != NULL && records != NULL && PyList_Append(records, record) == 0;
    Py_DECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(record);
    *count += 1;
    *size += key_size + value_size;
    return done;
}

/* Rows of the stream. */

static uint64_t big_endian(const char *at, int width) {
    uint64_t number = 0;
    for (int index = 0; index < width; index++)
        number = number << 8 | (unsigned char)at[index];
    return number;
}

static int put_tuple(PlainRows *self, Text frame) {
    if (frame.size < VALUES_AT || frame.size > ROW_BYTES_MAX || frame.at[KIND_AT] != 'N' ||
        big_endian(frame.at + COUNT_AT, 2) != (uint64_t)self->column_count)
        return 0;
    Py_ssize_t at = VALUES_AT;
    for (Py_ssize_t index = 0; index < self->column_count; index++) {
        char kind = at < frame.size ? frame.at[at] : 0;
        if (kind == 'n') {
            at += 1;
            if (!put_member(self, index, NULL))
                return 0;
        } else if (kind == 't' && frame.size - at >= VALUE_HEADER) {
            Text text = {frame.at + at + VALUE_HEADER, (Py_ssize_t)big_endian(frame.at + at + 1, 4)};
            at += VALUE_HEADER;
            if (text.size > frame.size - at || !put_member(self, index, &text))
                return 0;
            at += text.size;
        } else
            return 0;
    }
    return at == frame.size;
}

static int put_row(PlainRows *self, Text frame, Text op, Text source, Text tail, uint64_t ordinal) {
    self->size = 0;
    if (!put_text(self, self->opening) || !put_tuple(self, frame))
        return 0;
    uint64_t lsn = big_endian(frame.at + LSN_AT, 8);
    Py_ssize_t count = 0, size = 0;
    return put_text(self, self->rest) && put_text(self, source) &&
           put_text(self, self->position[0]) && put_unsigned(self, lsn) &&
           put_text(self, self->position[1]) && put_unsigned(self, lsn) &&
           put_text(self, self->position[2]) && put_unsigned(self, ordinal) && put_text(self, self->position[3]) &&
           put_text(self, op) && put_text(self, tail) && put_record(self, NULL, &count, &size);
}

/* Lines of COPY. */

/* Resolve the escapes that the server writes, as cdc/wire/copy_text.py. */
static int unescape(PlainRows *self, Text *text) {
    static const char letters[] = "bfnrtv\\", bytes[] = "\b\f\n\r\t\v\\";
    if (!make_room(&self->unescaped, &self->unescaped_room, text->size))
        return 0;
    Py_ssize_t size = 0;
    for (Py_ssize_t at = 0; at < text->size; at++) {
        char byte = text->at[at];
        if (byte == '\\') {
            const char *letter = ++at < text->size ? memchr(letters, text->at[at], sizeof letters - 1) : NULL;
            if (letter == NULL)
                return 0;
            byte = bytes[letter - letters];
        }
        self->unescaped[size++] = byte;
    }
    *text = (Text){self->unescaped, size};
    return 1;
}

static int put_line(PlainRows *self, Text line, Text rest, PyObject *drop, Py_ssize_t *count, Py_ssize_t *size) {
    self->size = 0;
    if (line.size > ROW_BYTES_MAX || !put_text(self, self->opening))
        return 0;
    const char *at = line.at, *end = line.at + line.size;
    for (Py_ssize_t index = 0; index < self->column_count; index++) {
        const char *tab = memchr(at, '\t', end - at);
        int last = index == self->column_count - 1;
        if ((tab == NULL) != last)
            return 0;
        Text text = {at, (last ? end : tab) - at};
        int null = text.size == 2 && memcmp(text.at, "\\N", 2) == 0;
        if (!null && memchr(text.at, '\\', text.size) && !unescape(self, &text))
            return 0;
        if (!put_member(self, index, null ? NULL : &text))
            return 0;
        at = last ? end : tab + 1;
    }
    return put_text(self, self->rest) && put_text(self, rest) && put_record(self, drop, count, size);
}

static int put_lines(PlainRows *self, Text text, Text rest, PyObject *drop, Py_ssize_t *count, Py_ssize_t *size) {
    const char *at = text.at, *end = text.at + text.size;
    while (at < end) {
        const char *newline = memchr(at, '\n', end - at);
        if (newline == NULL || !put_line(self, (Text){at, newline - at}, rest, drop, count, size))
            return 0;
        at = newline + 1;
    }
    return 1;
}

/* Methods. */

static int text_of(PyObject *bytes, Text *text) {
    return PyBytes_AsStringAndSize(bytes, (char **)&text->at, &text->size) == 0;
}

/* Whether an error must be raised. That of an encoder need not: the caller meets it again, and names the column. */
static int failed(void) {
    PyObject *error = PyErr_Occurred();
    if (error == NULL)
        return 0;
    if (PyErr_GivenExceptionMatches(error, PyExc_MemoryError) || !PyErr_GivenExceptionMatches(error, PyExc_Exception))
        return 1;
    PyErr_Clear();
    return 0;
}

static PyObject *take(PlainRows *self, PyObject *const *given, Py_ssize_t count) {
    Text frame, op, source, tail;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "take() has 5 arguments");
        return NULL;
    }
    if (!text_of(given[0], &frame) || !text_of(given[1], &op) || !text_of(given[2], &source) ||
        !text_of(given[3], &tail))
        return NULL;
    uint64_t ordinal = PyLong_AsUnsignedLongLong(given[4]);
    if (PyErr_Occurred())
        return NULL;
    int done = put_row(self, frame, op, source, tail, ordinal);
    return !done && failed() ? NULL : PyBool_FromLong(done);
}

static PyObject *copied(PlainRows *self, PyObject *const *given, Py_ssize_t count) {
    Text text, rest;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "copied() has 3 arguments");
        return NULL;
    }
    if (!text_of(given[0], &text) || !text_of(given[1], &rest))
        return NULL;
    Py_ssize_t partition_count = PyList_GET_SIZE(self->partitions), records = 0, bytes = 0;
    Py_ssize_t *before = PyMem_Calloc(partition_count, sizeof *before);
    if (before == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t index = 0; index < partition_count; index++)
        before[index] = PyList_Size(PyList_GET_ITEM(self->partitions, index));
    int done = put_lines(self, text, rest, given[2], &records, &bytes);
    int raise = !done && failed();
    for (Py_ssize_t index = 0; index < partition_count && !done; index++)
        if (PyList_SetSlice(PyList_GET_ITEM(self->partitions, index), before[index], PY_SSIZE_T_MAX, NULL) < 0)
            raise = 1;
    PyMem_Free(before);
    if (raise)
        return NULL;
    return done ? Py_BuildValue("nn", records, bytes) : Py_NewRef(Py_None);
}

/* The object. */

static int read_columns(PlainRows *self, PyObject *columns) {
    self->column_count = PyTuple_GET_SIZE(columns);
    self->columns = PyMem_Calloc(self->column_count + 1, sizeof *self->columns);
    if (self->columns == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t index = 0; index < self->column_count; index++) {
        Column *column = &self->columns[index];
        int form;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(columns, index), "y#iO", &column->member.at, &column->member.size, &form,
                              &column->encode))
            return 0;
        column->form = form;
    }
    return 1;
}

static int read_key(PlainRows *self, PyObject *key) {
    self->key_count = PyTuple_GET_SIZE(key);
    self->key = PyMem_Calloc(self->key_count + 1, sizeof *self->key);
    if (self->key == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t index = 0; index < self->key_count; index++) {
        Py_ssize_t column = self->key[index] = PyLong_AsSsize_t(PyTuple_GET_ITEM(key, index));
        if (PyErr_Occurred())
            return 0;
        if (column < 0 || column >= self->column_count) {
            PyErr_SetString(PyExc_IndexError, "a column of the key is not in the row");
            return 0;
        }
    }
    return 1;
}

static int init(PlainRows *self, PyObject *arguments, PyObject *named) {
    PyObject *columns, *key, *position;
    if (self->held != NULL || named != NULL) {
        PyErr_SetString(PyExc_TypeError, "PlainRows() is called once, without names");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "O!O!y#y#y#O!O!n", &PyTuple_Type, &columns, &PyTuple_Type, &key, &self->null.at,
                          &self->null.size, &self->opening.at, &self->opening.size, &self->rest.at, &self->rest.size,
                          &PyTuple_Type, &position, &PyList_Type, &self->partitions, &self->limit))
        return -1;
    self->held = Py_NewRef(arguments);
    if (PyTuple_GET_SIZE(position) != POSITION_TEXTS || PyList_GET_SIZE(self->partitions) == 0 ||
        PyTuple_GET_SIZE(key) == 0) {
        PyErr_SetString(PyExc_ValueError, "no key, no partition, or not four texts around a position");
        return -1;
    }
    for (int index = 0; index < POSITION_TEXTS; index++)
        if (!text_of(PyTuple_GET_ITEM(position, index), &self->position[index]))
            return -1;
    return read_columns(self, columns) && read_key(self, key) ? 0 : -1;
}

static void release(PlainRows *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->held);
    PyMem_Free(self->columns);
    PyMem_Free(self->key);
    PyMem_Free(self->buffer);
    PyMem_Free(self->unescaped);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, "See cdc.encode.plain_rows.PlainRows."},
    {"copied", (PyCFunction)(void (*)(void))copied, METH_FASTCALL, "See cdc.encode.plain_rows.PlainRows."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_init, init}, {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, release}, {Py_tp_methods, methods}, {0, NULL},
};
static PyType_Spec spec = {"cdc.encode._plain_rows.PlainRows", sizeof(PlainRows), 0, Py_TPFLAGS_DEFAULT, slots};

static int execute(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int added = type != NULL && PyModule_AddType(module, (PyTypeObject *)type) == 0;
    Py_XDECREF(type);
    return added ? 0 : -1;
}
static PyModuleDef_Slot steps[] = {{Py_mod_exec, execute}, {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_plain_rows", NULL, 0, NULL, steps, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__plain_rows(void) { return PyModuleDef_Init(&definition); }
