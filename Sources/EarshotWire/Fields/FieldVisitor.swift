extension FieldVisitor {
    /// Visits a field that no command offers.
    @inline(__always)
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole
    ) throws(WireError) {
        try field(name, &value, usual, form, role, help: nil)
    }
}

/// Code that goes through a table of fields.
///
/// A table is a function that passes each of its fields to a visitor. The compiler makes straight code of table and
/// visitor together: nothing is looked up at run time.
protocol FieldVisitor {
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) throws(WireError)

    /// Visits the fields of a route, which FETCH and JOB share.
    mutating func route(_ route: inout Route) throws(WireError)
}

/// Meaning of an option for the identity of a request.
enum FieldRole {
    /// Requests under one ID that differ in it are different requests.
    case content
    /// A request may be made again with another value.
    case handling
}

/// Reads one field into the property that the table has for its name.
struct FieldReader: FieldVisitor {
    let name: HeadText
    let text: HeadText
    /// Whether the table has the name.
    private(set) var isDone = false

    @inline(__always)
    init(_ name: HeadText, _ text: HeadText) {
        self.name = name
        self.text = text
    }

    @inline(__always)
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) throws(WireError) {
        guard !isDone, self.name == name else { return }
        isDone = true
        value = try form.read(text, name)
    }

    /// The caller reads these last, since few requests have any.
    @inline(__always)
    mutating func route(_ route: inout Route) {}
}

/// Writes the fields that differ from their defaults.
extension HeadWriter: FieldVisitor {
    @inline(__always)
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if value != usual { form.write(value, name, to: &self) }
    }

    @inline(__always)
    mutating func route(_ route: inout Route) { route.write(to: &self) }
}

/// Hashes the content of a request, for a comparison inside one process.
struct ContentHasher: FieldVisitor {
    var hasher: Hasher

    @inline(__always)
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if role == .content { hasher.combine(value) }
    }

    @inline(__always)
    mutating func route(_ route: inout Route) { hasher.combine(route) }
}

/// Finds out whether the content of a request is that of one without options.
struct ContentCheck: FieldVisitor {
    private(set) var isUsual = true

    @inline(__always)
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        if role == .content, value != usual { isUsual = false }
    }

    @inline(__always)
    mutating func route(_ route: inout Route) { isUsual = isUsual && route.isUsual }
}

/// Adds up the lengths of texts.
struct TextCounter: FieldVisitor {
    private(set) var byteCount = 0

    @inline(__always)
    mutating func field<Form: FieldForm>(
        _ name: String, _ value: inout Form.Value, _ usual: Form.Value, _ form: Form, _ role: FieldRole,
        help: String?
    ) {
        byteCount += form.textBytes(value)
    }

    @inline(__always)
    mutating func route(_ route: inout Route) { byteCount += route.isUsual ? 0 : route.canonical.utf8.count }
}

/// One field of a table, for people.
public struct FieldRow: Equatable, Sendable {
    /// Name on the wire.
    public let name: String
    /// All values, if they are a few words; else none.
    public let words: [String]
    /// The default as it would be written; empty for a field without one.
    public let usual: String
    /// Help of the command-line option; nil for a field that is none.
    public let help: String?
}

/// Lists the fields of a table.
struct FieldList: FieldVisitor {
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
