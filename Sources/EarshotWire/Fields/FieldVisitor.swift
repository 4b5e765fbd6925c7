/// An operation on each field of a table.
///
/// A table is a function that passes each of its fields to a visitor. The compiler specializes table and visitor
/// together into straight-line code without lookups at run time.
protocol FieldVisitor {
    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) throws(WireError)

    /// Visits the fields of a route, which FETCH and JOB share.
    mutating func visitRoute(_ route: inout Route) throws(WireError)
}

extension FieldVisitor {
    /// Visits a field without a command-line option.
    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole
    ) throws(WireError) {
        try visitField(name, &value, defaultValue, form, role, help: nil)
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
    private(set) var hasMatched = false

    init(name: HeadText, value text: HeadText) {
        self.name = name
        self.text = text
    }

    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) throws(WireError) {
        guard !hasMatched, self.name == name else { return }
        hasMatched = true
        value = try form.parse(text, fieldName: name)
    }

    /// Does nothing. The caller tries the route's fields last, because few requests have any.
    mutating func visitRoute(_ route: inout Route) {}
}

/// Writes the fields that differ from their defaults.
extension HeadWriter: FieldVisitor {
    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if value != defaultValue { form.writeField(value, name: name, to: &self) }
    }

    mutating func visitRoute(_ route: inout Route) { route.write(to: &self) }
}

/// Hashes the content of a request, for comparisons inside one process.
struct ContentHasher: FieldVisitor {
    var hasher: Hasher

    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if role == .content { hasher.combine(value) }
    }

    mutating func visitRoute(_ route: inout Route) { hasher.combine(route) }
}

/// Checks whether the content of a request is that of one without options.
struct ContentCheck: FieldVisitor {
    private(set) var isDefault = true

    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if role == .content, value != defaultValue { isDefault = false }
    }

    mutating func visitRoute(_ route: inout Route) { isDefault = isDefault && route.isDefault }
}

/// Adds up the lengths of texts, in bytes.
struct TextCounter: FieldVisitor {
    private(set) var byteCount = 0

    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        byteCount += form.textBytes(value)
    }

    mutating func visitRoute(_ route: inout Route) { byteCount += route.isDefault ? 0 : route.canonicalText.utf8.count }
}

/// Description of one field of a table, for help and documents.
public struct FieldRow: Equatable, Sendable {
    /// Name on the wire.
    public let name: String
    /// All values, if the form is an enumeration; empty otherwise.
    public let allowedWords: [String]
    /// The default in its written form; empty for a field without a default.
    public let defaultText: String
    /// Help of the command-line option; nil for a field without an option.
    public let help: String?
}

/// Lists the fields of a table.
struct FieldRowList: FieldVisitor {
    private(set) var rows: [FieldRow] = []

    mutating func visitField<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ defaultValue: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        var writer = HeadWriter("")
        form.writeField(defaultValue, name: name, to: &writer)
        let text = String(decoding: writer.bytes.dropFirst(name.utf8.count + 3), as: UTF8.self)
        rows.append(FieldRow(name: name, allowedWords: form.allowedWords, defaultText: text, help: help))
    }

    mutating func visitRoute(_ route: inout Route) {
        rows += Route.fieldNames.map { FieldRow(name: $0, allowedWords: [], defaultText: "", help: nil) }
    }
}
