internal import ArgumentParser
internal import EarshotCore

/// Command-line options derived from the table of settings.
///
/// The argument parser finds options as the children of a mirror and decodes each by its label. So a list of options
/// can replace properties.
struct SettingValues: ParsableArguments, CustomReflectable {
    private let options: [(name: SettingName, option: Option<String?>)]

    init() {
        let defaults = Settings()
        options = SettingName.allCases.map { name in
            let standard = defaults[name].map { " (default: \(name.text($0)))" } ?? ""
            let words = name.takesWord ? ", \(name.bounds)" : ""
            let help = name.help.prefix(1).uppercased() + name.help.dropFirst() + words + "." + standard
            return (
                name,
                Option(
                    name: .customLong(name.rawValue), help: ArgumentHelp(help, valueName: name.placeholder),
                    completion: name.words.isEmpty ? nil : .list(name.words))
            )
        }
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: OptionKey.self)
        options = try SettingName.allCases.map { name in
            (name, try container.decode(Option<String?>.self, forKey: OptionKey(name.rawValue)))
        }
    }

    var customMirror: Mirror { Mirror(self, children: options.map { (label: $0.name.rawValue, value: $0.option) }) }

    /// Settings with a value on the command line.
    var given: [(SettingName, String)] {
        options.compactMap { name, option in option.wrappedValue.map { (name, $0) } }
    }
}
