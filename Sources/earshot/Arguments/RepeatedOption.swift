/// Error for an option with a single value that is given more than once. The parser would use the last value and lose the
/// others without a word. That is right only for options that choose the bus and for those of `serve`: an alias or a unit
/// has values that later ones replace.
struct RepeatedOption: Error {
    /// The name that was given last, with dashes.
    let name: String
    /// The command, without the name of the program.
    let path: [String]

    /// The message, in the form of the argument parser.
    var message: String {
        let command = (["earshot"] + path).joined(separator: " ")
        return "Error: \(name) is given more than once; give it once.\n  See '\(command) --help' for more information."
    }

    /// Long names of the options that have a short name. `-o` stands for `--out`, too.
    static let longNames = [
        "-i": "--input", "-o": "--output", "-d": "--directory", "-D": "--dump-header", "-j": "--jobs", "-X": "--method",
        "-H": "--header", "-A": "--user-agent", "-u": "--user", "-b": "--cookie-file", "-c": "--cookie-jar",
        "--out": "--output",
    ]

    /// Options of a bus: the last value counts.
    static let replaceable: Set = ["--bus", "--bus-key", "--server-key", "--runtime"]

    /// Whether any word may repeat an option. This costs little, unlike the shape of the program, which then decides.
    static func isPossible(in arguments: ArraySlice<String>) -> Bool {
        guard arguments.first != "serve" else { return false }
        var names: Set<String> = []
        for word in arguments.prefix(while: { $0 != "--" }) where word.hasPrefix("-") && word != "-" {
            let name = String(word.prefix { $0 != "=" })
            if !replaceable.contains(name), !names.insert(longNames[name] ?? name).inserted { return true }
        }
        return false
    }
}
