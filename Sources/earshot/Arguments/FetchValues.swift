internal import ArgumentParser
internal import EarshotWire

/// Section of the help for a part of the FETCH options.
protocol FetchSection {
    /// Whether the section has the option of this name. Each option belongs to one section.
    static func contains(_ name: String) -> Bool
}

/// Options that describe the HTTP exchange.
enum HTTPSection: FetchSection {
    private static let names: Set = ["redirect", "cache", "cookies"]

    static func contains(_ name: String) -> Bool { names.contains(name) }
}

/// Options that describe the handling of a request by the bus: all others.
enum HandlingSection: FetchSection {
    static func contains(_ name: String) -> Bool { !HTTPSection.contains(name) }
}

/// Command-line options derived from the FETCH options with a help text: a flag for `yes` or `no`, else an option with
/// a value.
///
/// The argument parser finds them as the children of a mirror, as with `SettingValues`.
struct FetchValues<Section: FetchSection>: ParsableArguments, CustomReflectable {
    private enum Value {
        case flag(Flag<Bool>)
        case option(Option<String?>)
    }

    private let values: [(row: FieldRow, value: Value)]

    init() {
        values = FetchRows.of(Section.self).map { row in
            let help = row.help ?? ""
            guard !FetchRows.isFlag(row) else {
                return (
                    row, .flag(Flag(wrappedValue: false, name: .customLong(row.name), help: ArgumentHelp("\(help).")))
                )
            }
            let usual = FetchRows.defaults[row.name] ?? row.usual
            let remarks = [
                row.words.isEmpty ? nil : "values: \(row.words.joined(separator: ", "))",
                usual.isEmpty ? nil : "default: \(usual)",
            ].compactMap(\.self)
            let text = remarks.isEmpty ? "\(help)." : "\(help). (\(remarks.joined(separator: "; ")))"
            let option: Option<String?> = Option(
                name: .customLong(row.name), help: ArgumentHelp(text, valueName: FetchRows.placeholder(row)),
                completion: row.words.isEmpty ? nil : .list(row.words),
                transform: { try FetchRows.checkedText($0, row) })
            return (row, .option(option))
        }
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: OptionKey.self)
        values = try FetchRows.of(Section.self).map { row in
            let key = OptionKey(row.name)
            guard FetchRows.isFlag(row) else {
                return (row, .option(try container.decode(Option<String?>.self, forKey: key)))
            }
            return (row, .flag(try container.decode(Flag<Bool>.self, forKey: key)))
        }
    }

    var customMirror: Mirror {
        Mirror(
            self,
            children: values.map { row, value -> (label: String?, value: Any) in
                switch value {
                case .flag(let flag): (row.name, flag)
                case .option(let option): (row.name, option)
                }
            })
    }

    /// Applies the options of the command line.
    func apply(to options: inout Fetch.Options) {
        for (row, value) in values {
            let text: String? =
                switch value {
                case .flag(let flag): flag.wrappedValue ? (row.usual == "yes" ? "no" : "yes") : nil
                case .option(let option): option.wrappedValue ?? FetchRows.defaults[row.name]
                }
            // The text was checked when it was parsed.
            if let text { try? options.set(row.name, to: text) }
        }
    }
}

/// FETCH options that are options of the command line.
private enum FetchRows {
    /// Defaults of the command that differ from those of FETCH.
    static let defaults = ["cache": CacheMode.explicit.rawValue]
    private static let all = Fetch.Options.fields.filter { $0.help != nil }

    static func of(_ section: any FetchSection.Type) -> [FieldRow] { all.filter { section.contains($0.name) } }

    static func isFlag(_ row: FieldRow) -> Bool { row.words == ["yes", "no"] }

    /// Placeholder for a value: the unit at the end of the help, or else the name of the option.
    static func placeholder(_ row: FieldRow) -> String {
        guard let help = row.help, let unit = help.firstRange(of: ", in ") else { return row.name }
        return String(help[unit.upperBound...])
    }

    /// Returns the text of a value on the wire. A number of bytes may have a suffix on the command line only.
    static func checkedText(_ given: String, _ row: FieldRow) throws -> String {
        let size = placeholder(row).hasPrefix("bytes") ? ByteCount.number(given) : nil
        let text = size.map { String($0) } ?? given
        var options = Fetch.Options()
        do throws(WireError) {
            try options.set(row.name, to: text)
        } catch {
            let isSize = placeholder(row).hasPrefix("bytes")
            throw ValidationError(error.detail + (isSize ? ", or one with the suffix \(ByteCount.suffixes)" : ""))
        }
        return text
    }
}
