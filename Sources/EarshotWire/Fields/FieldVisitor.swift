/// An operation on each field of a table.
///
/// A table is a function that passes each of its fields to a visitor. The compiler specializes table and visitor
/// together into straight-line code without lookups at run time.
protocol FieldVisitor {
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) throws(WireError)

    /// Visits the fields of a route, which FETCH and JOB share.
    mutating func route(_ route: inout Route) throws(WireError)
}

extension FieldVisitor {
    /// Visits a field without a command-line option.
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole
    ) throws(WireError) {
        try field(name, &value, usual, form, role, help: nil)
    }
}

/// Role of an option in the identity of a request.
enum FieldRole {
    /// Two requests under one ID with different values are different requests.
    case content
    /// A repeated request may have another value.
    case handling
}

/// Reads one field into the property that the table assigns to its name.
struct FieldReader: FieldVisitor {
    let name: HeadText
    let text: HeadText
    /// Whether the table contains the name.
    private(set) var isDone = false

    init(_ name: HeadText, _ text: HeadText) {
        self.name = name
        self.text = text
    }

    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) throws(WireError) {
        guard !isDone, self.name == name else { return }
        isDone = true
        value = try form.read(text, name)
    }

    /// Does nothing. The caller tries the route's fields last, because few requests have any.
    mutating func route(_ route: inout Route) {}
}

/// Writes the fields that differ from their defaults.
extension HeadWriter: FieldVisitor {
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if value != usual { form.write(value, name, to: &self) }
    }

    mutating func route(_ route: inout Route) { route.write(to: &self) }
}

/// Hashes the content of a request, for comparisons inside one process.
struct ContentHasher: FieldVisitor {
    var hasher: Hasher

    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if role == .content { hasher.combine(value) }
    }

    mutating func route(_ route: inout Route) { hasher.combine(route) }
}

/// Checks whether the content of a request is that of one without options.
struct ContentCheck: FieldVisitor {
    private(set) var isUsual = true

    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if role == .content, value != usual { isUsual = false }
    }

    mutating func route(_ route: inout Route) { isUsual = isUsual && route.isUsual }
}

/// Adds up the lengths of texts, in bytes.
struct TextCounter: FieldVisitor {
    private(set) var byteCount = 0

    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        byteCount += form.textBytes(value)
    }

    mutating func route(_ route: inout Route) { byteCount += route.isUsual ? 0 : route.canonical.utf8.count }
}

/// Description of one field of a table, for help and documents.
public struct FieldRow: Equatable, Sendable {
    /// Name on the wire.
    public let name: String
    /// All values, if the form is an enumeration; empty otherwise.
    public let words: [String]
    /// The default in its written form; empty for a field without a default.
    public let usual: String
    /// Help of the command-line option; nil for a field without an option.
    public let help: String?
}

/// Lists the fields of a table.
struct FieldRowList: FieldVisitor {
    private(set) var rows: [FieldRow] = []

    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        var writer = HeadWriter("")
        form.write(usual, name, to: &writer)
        let text = String(decoding: writer.bytes.dropFirst(name.utf8.count + 3), as: UTF8.self)
        rows.append(FieldRow(name: name, words: form.words, usual: text, help: help))
    }

    mutating func route(_ route: inout Route) {
        rows += Route.fieldNames.map { FieldRow(name: $0, words: [], usual: "", help: nil) }
    }
}
