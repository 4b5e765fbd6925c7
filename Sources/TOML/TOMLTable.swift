/// Table of a TOML file, as `TOMLReader` fills it.
package final class TOMLTable {
    /// Place that defines a table, which decides about later additions to it.
    enum Definition {
        /// A header of a table in it, such as `[a.b]` for `a`. Its own header may follow.
        case lowerHeader
        case header
        /// A dotted key, such as `a.b = 1` for `a`. Further dotted keys of the same section and headers may add to it.
        case dottedKey
        /// An inline table, which is complete.
        case inline
    }

    /// Keys in the order of the file.
    package private(set) var keys: [String] = []
    var definition: Definition
    /// By the bytes of the key: Swift's strings are also equal if they differ in their bytes, and those of TOML are not.
    private var values: [[UInt8]: TOMLValue] = [:]

    init(_ definition: Definition) { self.definition = definition }

    package subscript(key: String) -> TOMLValue? { values[Array(key.utf8)] }

    /// Adds a value. Its key must be new.
    func add(_ key: String, _ value: TOMLValue) {
        let previous = values.updateValue(value, forKey: Array(key.utf8))
        precondition(previous == nil, "the key \(key) has a value")
        keys.append(key)
    }
}

/// Value of a TOML file.
package enum TOMLValue {
    case string(String)
    case int(Int)
    case double(Double)
    case bool(Bool)
    case array([TOMLValue])
    case table(TOMLTable)

    /// The text; nil for another type, as in the properties below.
    package var string: String? { if case .string(let value) = self { value } else { nil } }
    package var int: Int? { if case .int(let value) = self { value } else { nil } }
    package var double: Double? { if case .double(let value) = self { value } else { nil } }
    package var array: [TOMLValue]? { if case .array(let value) = self { value } else { nil } }
    package var table: TOMLTable? { if case .table(let value) = self { value } else { nil } }
}
