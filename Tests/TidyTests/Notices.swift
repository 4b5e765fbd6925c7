/// Licence texts in `packaging/notices`: one for each dependency, which the Debian package carries.
enum Notices {
    /// Dependency that no file names: the standard library is linked into each program.
    static let implicit = "swift"

    /// Names of the packages, linked libraries and libraries loaded at run time in one file.
    static func dependencies(_ file: SourceFile) -> [String] {
        // The substring tests come first: regular expressions take a thousand times as long.
        let marks = [".package(url", "link", ".so"]
        return file.lines.filter { line in marks.contains { line.contains($0) } }.flatMap(dependencies(in:))
    }

    private static func dependencies(in line: String) -> [String] {
        var found = line.matches(of: /\.package\(url: "[^"]*\/([\w.-]+?)(?:\.git)?"/).map { String($0.1) }
        found += line.matches(of: /^\s*link "([\w-]+)"/).map { "lib" + $0.1 }
        found += line.matches(of: /\.linkedLibrary\("([\w-]+)"/).map { "lib" + $0.1 }
        found += line.matches(of: /"(lib[\w-]+)\.so\b/).map { String($0.1) }
        return found
    }

    /// Dependencies without a text, texts without a dependency, and texts too short for a licence.
    static func violations(dependencies: Set<String>, texts: [SourceFile]) -> [String] {
        let names = Dictionary(texts.map { (name(of: $0), $0) }) { first, _ in first }
        let needed = dependencies.union([implicit])
        let missing = needed.subtracting(names.keys).map { "packaging/notices/\($0).txt:1: missing licence of \($0)" }
        let unused = names.keys.filter { !needed.contains($0) }
            .map { "packaging/notices/\($0).txt:1: nothing links or loads \($0)" }
        let short = texts.filter { $0.lines.count < 20 }.map { "\($0.path):1: no licence text" }
        return (missing + unused + short).sorted()
    }

    private static func name(of file: SourceFile) -> String {
        let name = file.path.split(separator: "/").last ?? ""
        return String(name.hasSuffix(".txt") ? name.dropLast(4) : name)
    }
}
