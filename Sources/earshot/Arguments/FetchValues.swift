internal import ArgumentParser
internal import EarshotWire

/// Command-line options derived from the FETCH options with a help text: a flag for `yes` or `no`, else an option with
/// a value.
///
/// The argument parser finds them as the children of a mirror, as with `SettingValues`.
struct FetchValues: ParsableArguments, CustomReflectable {
    /// Defaults of the command that differ from those of FETCH.
    private static let standard = ["cache": CacheMode.explicit.rawValue]

    private enum Value {
        case flag(Flag<Bool>)
        case option(Option<String?>)
    }

    private let values: [(row: FieldRow, value: Value)]

    init() {
        values = Self.rows.map { row in
            let help = row.help ?? ""
            guard !Self.isFlag(row) else {
                return (
                    row, .flag(Flag(wrappedValue: false, name: .customLong(row.name), help: ArgumentHelp("\(help).")))
                )
            }
            let usual = Self.standard[row.name] ?? row.usual
            let remarks = [
                row.words.isEmpty ? nil : "values: \(row.words.joined(separator: ", "))",
                usual.isEmpty ? nil : "default: \(usual)",
            ].compactMap(\.self)
            let text = remarks.isEmpty ? "\(help)." : "\(help) (\(remarks.joined(separator: "; ")))."
            let option: Option<String?> = Option(
                name: .customLong(row.name), help: ArgumentHelp(text),
                completion: row.words.isEmpty ? nil : .list(row.words), transform: { try Self.checked($0, row.name) })
            return (row, .option(option))
        }
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: OptionKey.self)
        values = try Self.rows.map { row in
            let key = OptionKey(row.name)
            guard Self.isFlag(row) else {
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
                case .option(let option): option.wrappedValue ?? Self.standard[row.name]
                }
            // The text was checked when it was parsed.
            if let text { try? options.set(row.name, to: text) }
        }
    }

    private static let rows = Fetch.Options.fields.filter { $0.help != nil }

    private static func isFlag(_ row: FieldRow) -> Bool { row.words == ["yes", "no"] }

    private static func checked(_ text: String, _ name: String) throws -> String {
        var options = Fetch.Options()
        do throws(WireError) {
            try options.set(name, to: text)
        } catch {
            throw ValidationError(error.detail)
        }
        return text
    }
}
