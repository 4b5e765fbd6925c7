/// Form of a field's value: how the value is parsed and written.
protocol FieldForm<Value> {
    associatedtype Value: Hashable

    /// Parses a value.
    ///
    /// - Parameter name: Name of the field, for the error.
    func read(_ text: HeadText, _ name: String) throws(WireError) -> Value
    /// Writes a field with a value.
    func write(_ value: Value, _ name: String, to writer: inout HeadWriter)
    /// Length of a value of variable length, in bytes; 0 for other forms.
    func textBytes(_ value: Value) -> Int
    /// All values in their written form, if the form is an enumeration; empty otherwise.
    var words: [String] { get }
}

extension FieldForm {
    func textBytes(_ value: Value) -> Int { 0 }
    var words: [String] { [] }
}

/// Flag: `yes` or `no`.
struct FlagForm: FieldForm {
    func read(_ text: HeadText, _ name: String) throws(WireError) -> Bool { try HeadReader.flag(text, name) }

    func write(_ value: Bool, _ name: String, to writer: inout HeadWriter) { writer.field(name, value ? "yes" : "no") }

    var words: [String] { ["yes", "no"] }
}

/// Enumeration with one word for each value.
struct WordForm<Value: RawRepresentable<String> & CaseIterable & Hashable>: FieldForm {
    func read(_ text: HeadText, _ name: String) throws(WireError) -> Value {
        guard let value = Value(rawValue: text.string) else { throw error(name) }
        return value
    }

    func write(_ value: Value, _ name: String, to writer: inout HeadWriter) { writer.field(name, value.rawValue) }

    var words: [String] { Value.allCases.map(\.rawValue) }

    private func error(_ name: String) -> WireError {
        let words = words
        return WireError(
            .badMessage, "\(name) must be \(words.dropLast().joined(separator: ", ")) or \(words.last ?? "nothing")")
    }
}

/// Priority class.
struct ClassForm: FieldForm {
    func read(_ text: HeadText, _ name: String) throws(WireError) -> PriorityClass {
        try HeadReader.priorityClass(text)
    }

    func write(_ value: PriorityClass, _ name: String, to writer: inout HeadWriter) { writer.field(name, value.name) }
}

/// Time in seconds, greater than 0, stored in milliseconds.
struct SecondsForm: FieldForm {
    func read(_ text: HeadText, _ name: String) throws(WireError) -> Int { try HeadReader.milliseconds(text, name) }

    func write(_ value: Int, _ name: String, to writer: inout HeadWriter) { writer.field(name, seconds: value) }
}

/// Number in a range.
struct NumberForm: FieldForm {
    private let range: ClosedRange<Int>

    init(_ range: ClosedRange<Int>) {
        self.range = range
    }

    func read(_ text: HeadText, _ name: String) throws(WireError) -> Int {
        try HeadReader.integer(text, in: range, name)
    }

    func write(_ value: Int, _ name: String, to writer: inout HeadWriter) { writer.field(name, value) }
}

/// HTTP method.
struct MethodForm: FieldForm {
    func read(_ text: HeadText, _ name: String) throws(WireError) -> String {
        guard Ascii.isIdentifier(text.bytes) else { throw WireError(.badMessage, "\(name) must be an HTTP method") }
        return text.string
    }

    func write(_ value: String, _ name: String, to writer: inout HeadWriter) { writer.field(name, value) }
    func textBytes(_ value: String) -> Int { value.utf8.count }
}

/// SHA-256 with the prefix `sha-256=` on the wire, stored without it.
struct DigestForm: FieldForm {
    func read(_ text: HeadText, _ name: String) throws(WireError) -> String {
        guard text.bytes.starts(with: "sha-256=".utf8) else {
            throw WireError(.badMessage, "\(name) must have the form sha-256=HEX")
        }
        return try HeadReader.sha256(text.dropFirst(8), name)
    }

    func write(_ value: String, _ name: String, to writer: inout HeadWriter) { writer.field(name, "sha-256=" + value) }
    func textBytes(_ value: String) -> Int { value.utf8.count }
}

/// Value that may be absent.
struct OptionalForm<Form: FieldForm>: FieldForm {
    private let form: Form

    init(_ form: Form) {
        self.form = form
    }

    func read(_ text: HeadText, _ name: String) throws(WireError) -> Form.Value? { try form.read(text, name) }

    func write(_ value: Form.Value?, _ name: String, to writer: inout HeadWriter) {
        if let value { form.write(value, name, to: &writer) }
    }

    func textBytes(_ value: Form.Value?) -> Int { value.map { form.textBytes($0) } ?? 0 }
    var words: [String] { form.words }
}
