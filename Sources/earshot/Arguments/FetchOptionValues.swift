internal import ArgumentParser
internal import EarshotWire

/// Section of the help for a part of the FETCH options.
protocol FetchSection {
    /// Whether the section has the option of this name. Each option belongs to one section.
    static func contains(_ name: String) -> Bool
}

/// Options that describe the HTTP exchange.
enum HTTPSection: FetchSection {
    private static let optionNames: Set = ["redirect", "cache", "cookies"]

    static func contains(_ name: String) -> Bool { optionNames.contains(name) }
}

/// Options that describe the handling of a request by the bus: all others.
enum HandlingSection: FetchSection {
    static func contains(_ name: String) -> Bool { !HTTPSection.contains(name) }
}

/// Command-line options derived from the FETCH options with a help text: a flag for `yes` or `no`, else an option with
/// a value.
///
/// The argument parser finds them as the children of a mirror, as with `SettingValues`.
struct FetchOptionValues<Section: FetchSection>: ParsableArguments, CustomReflectable {
    private enum Value {
        case flag(Flag<Bool>)
        case option(Option<String?>)
    }

    private let values: [(row: FieldRow, value: Value)]

    init() {
        values = FetchOptionRows.rows(in: Section.self).map { row in
            let help = row.help ?? ""
            guard !FetchOptionRows.isFlag(row) else {
                let flag: Flag<Bool> = Flag(
                    wrappedValue: false, name: .customLong(row.name), help: ArgumentHelp("\(help)."))
                return (row, .flag(flag))
            }
            let usual = FetchOptionRows.defaults[row.name] ?? row.defaultText
            let remarks = [
                row.allowedWords.isEmpty ? nil : "values: \(row.allowedWords.joined(separator: ", "))",
                usual.isEmpty ? nil : "default: \(usual)",
            ].compactMap(\.self)
            let text = remarks.isEmpty ? "\(help)." : "\(help). (\(remarks.joined(separator: "; ")))"
            let option: Option<String?> = Option(
                name: .customLong(row.name), help: ArgumentHelp(text, valueName: FetchOptionRows.placeholder(row)),
                completion: row.allowedWords.isEmpty ? nil : .list(row.allowedWords),
                transform: { try FetchOptionRows.validatedWireText($0, row) })
            return (row, .option(option))
        }
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: OptionKey.self)
        values = try FetchOptionRows.rows(in: Section.self).map { row in
            let key = OptionKey(row.name)
            guard FetchOptionRows.isFlag(row) else {
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
                case .flag(let flag): flag.wrappedValue ? (row.defaultText == "yes" ? "no" : "yes") : nil
                case .option(let option): option.wrappedValue ?? FetchOptionRows.defaults[row.name]
                }
            // The text was checked when it was parsed.
            if let text { try? options.setOption(row.name, to: text) }
        }
    }
}

/// FETCH options that are options of the command line.
private enum FetchOptionRows {
    /// Defaults of the command that differ from those of FETCH.
    static let defaults = ["cache": CacheMode.explicit.rawValue]
    private static let commandLineRows = Fetch.Options.fieldRows.filter { $0.help != nil }

    static func rows(in section: any FetchSection.Type) -> [FieldRow] {
        commandLineRows.filter { section.contains($0.name) }
    }

    static func isFlag(_ row: FieldRow) -> Bool { row.allowedWords == ["yes", "no"] }

    /// Placeholder for a value: the unit at the end of the help, or else the name of the option.
    static func placeholder(_ row: FieldRow) -> String {
        guard let help = row.help, let unit = help.firstRange(of: ", in ") else { return row.name }
        return String(help[unit.upperBound...])
    }

    /// Returns the text of a value on the wire. A number of bytes may have a suffix on the command line only.
    static func validatedWireText(_ given: String, _ row: FieldRow) throws -> String {
        let size = placeholder(row).hasPrefix("bytes") ? ByteCount.parse(given) : nil
        let text = size.map { String($0) } ?? given
        var options = Fetch.Options()
        do throws(WireError) {
            try options.setOption(row.name, to: text)
        } catch {
            let isSize = placeholder(row).hasPrefix("bytes")
            throw ValidationError(error.detail + (isSize ? ", or one with the suffix \(ByteCount.suffixList)" : ""))
        }
        return text
    }
}
