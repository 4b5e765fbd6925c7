import ArgumentParser
import EarshotCore
import Foundation
import Testing

@testable import earshot

/// Files, variables and options as sources of settings.
@Suite struct ConfigurationTests {
    private let folder = CommandFolder()

    private func changes(_ text: String) throws -> [SettingChange] {
        try #require(try ConfigurationFile.read(folder.file("config.toml", text)))
    }

    @Test func `a file holds numbers, rules for origins and rules for addresses`() throws {
        let changes = try changes(
            """
            slots = 32
            cool-down = 30.5
            address-policy = "public-only"
            users = ["root", "@root", "1000"]
            [origin."https://example.org"]
            limit = 2
            spacing = 0.5
            [address]
            "10.0.0.0/8" = "allow"
            """)
        #expect(
            Set(changes.map { $0.normalizedWords.joined(separator: " ") }) == [
                "slots 32", "cool-down 30.5", "address-policy public-only", "users root,@root,1000",
                "origin https://example.org limit=2 spacing=0.5",
                "address 10.0.0.0/8 allow",
            ])
    }

    @Test func `a value means the same in a file, an option, a variable and a SET`() throws {
        // Values for one command line each, because ArgumentParser takes long for a command line.
        var lines: [[(option: [String], change: SettingChange)]] = []
        for name in SettingName.allCases {
            let range = name.storedValueRange
            let texts =
                switch name.valuePlaceholder {
                case "size": ["1G", "2G", "2g", "64K", "1048576"]
                case "word": name.possibleWords
                case "seconds": ["2.5", "90"]
                default: ["1", "16"]
                }
            let valid = texts.filter { text in (try? name.parseValue(text)).map(range.contains) == true }
            #expect(!valid.isEmpty, "\(name)")
            for (line, text) in valid.enumerated() {
                let expected = [SettingChange.setValue(name, try name.parseValue(text))]
                if line == lines.count { lines.append([]) }
                lines[line].append((["--\(name.rawValue)", text], expected[0]))
                #expect(try SettingChange(words: [name.rawValue, text]) == expected[0])
                #expect(try changes("\(name.rawValue) = \"\(text)\"") == expected)
                if Double(text) != nil { #expect(try changes("\(name.rawValue) = \(text)") == expected) }
            }
        }
        for line in lines {
            #expect(try SettingOptions.parse(line.flatMap(\.option)).settingChanges() == line.map(\.change))
        }
        let path = try folder.file("config.toml", "cache-size = \"2 G\"")
        let commandError = #expect(throws: CommandError.self) { try ConfigurationFile.read(path) }
        #expect(commandError?.description.hasPrefix("\(path): cache-size must be 0 to ") == true)
    }

    @Test func `variables that begin like those of this program and mean nothing are named`() {
        defer { unsafe unsetenv("EARSHOT_ORIGIN_LIMT") }
        unsafe setenv("EARSHOT_ORIGIN_LIMT", "4", 1)
        #expect(Configuration.unknownVariables?.contains("EARSHOT_ORIGIN_LIMT") == true)
        unsafe setenv("EARSHOT_ORIGIN_LIMIT", "4", 1)
        defer { unsafe unsetenv("EARSHOT_ORIGIN_LIMIT") }
        unsafe unsetenv("EARSHOT_ORIGIN_LIMT")
        #expect(Configuration.unknownVariables?.contains("EARSHOT_ORIGIN") != true)
    }

    @Test func `a file names a program for requests that end, which must be executable`() throws {
        func hook(_ text: String) throws -> HookProgram? {
            try Configuration(
                file: folder.file("config.toml", text), optionChanges: [], pool: ConfigurationOptions.pool
            ).hookProgram()
        }
        #expect(try hook("slots = 3") == nil && hook("on-complete = []") == nil)
        let program = try #require(try hook("on-complete = [\"true\", \"a b\", \"\"]"))
        #expect(program.commandWords == ["true", "a b", ""] && program.path?.hasSuffix("/true") == true)
        for text in ["on-complete = [\"/no/such/tool\"]", "on-complete = [\"\"]"] {
            let commandError = #expect(throws: CommandError.self) { try hook(text) }
            #expect(
                commandError?.status == .configurationError && commandError?.description.contains("on-complete") == true
            )
        }
        #expect(try changes("on-complete = [\"true\"]").isEmpty, "no client can change it")
    }

    @Test func `a missing file changes nothing`() throws {
        #expect(try ConfigurationFile.read(folder.path + "/none.toml") == nil)
        #expect(try ConfigurationFile.read(folder.file("file", "") + "/below") == nil)
    }

    @Test(arguments: [
        ("slots = ", "line 1"), ("slots = 0", "slots"), ("slots = \"many\"", "slots"), ("slots = -1", "slots"),
        ("slot = 3", "slots"), ("cool-down = 1e300", "cool-down"), ("origin = 3", "origin must be a table"),
        ("[origin.\"h\"]\nlimt = 2", "did you mean limit?"),
        ("[origin.\"h\"]\ncolour = 2", "use limit, spacing, http2"),
        ("origin.h = 2", "must be a table"), ("address = 3", "address must be a table"),
        ("[address]\n\"10.0.0.0/8\" = \"maybe\"", "10.0.0.0/8"),
        ("address-policy = \"none\"", "address-policy"), ("slots = 3\0", "zero byte"),
        ("on-complete = \"true\"", "array of at most 64 strings"), ("on-complete = [\"true\", 3]", "array of at most"),
        ("users = \"root\"", "users must be a list, such as users = ["), ("users = [\"a b\"]", "users must be words"),
    ])
    func `an error names the file and the place in it`(text: String, part: String) throws {
        let path = try folder.file("config.toml", text)
        do {
            let changes = try ConfigurationFile.read(path)
            Issue.record("read as \(changes ?? [])")
        } catch {
            #expect(error.status == .configurationError)
            #expect(error.description.hasPrefix(path + ": "))
            #expect(error.description.contains(part), "\(error)")
        }
    }

    @Test func `arguments override a file, and a file the defaults of the pool`() throws {
        let path = try folder.file("config.toml", "slots = 32\norigin-limit = 3\n")
        let pool = Configuration.Pool(workerCount: 2, slotsPerWorker: 64)
        let settings = try Configuration(file: path, optionChanges: [.setValue(.originLimit, 5)], pool: pool)
            .readSettings()
        #expect(settings[.slots] == 32)
        #expect(settings[.workers] == 2)
        #expect(settings[.originLimit] == 5)
        let sources = Dictionary(settings.rows.map { ($0.name, $0.source) }) { first, _ in first }
        #expect(sources["slots"] == path)
        #expect(sources["workers"] == Settings.SourceName.builtInDefault)
        #expect(sources["origin-limit"] == Settings.SourceName.commandLineOption)
    }

    @Test func `an unknown user or group is an error that names the source`() throws {
        let path = try folder.file("config.toml", "users = [\"no-such-user\"]\n")
        let file = #expect(throws: CommandError.self) {
            try Configuration(file: path, optionChanges: [], pool: nil).readSettings()
        }
        #expect(file?.description.hasPrefix("users of \(path): there is no user no-such-user") == true)
        let option = #expect(throws: CommandError.self) {
            try Configuration(file: path, optionChanges: [.setList(.allowedUsers, ["@no-such-group"])], pool: nil)
                .readSettings()
        }
        #expect(option?.description.hasPrefix("--users: there is no group no-such-group") == true)
        let settings = try Configuration(file: path, optionChanges: [.setList(.allowedUsers, ["root"])], pool: nil)
            .readSettings()
        #expect(settings[.allowedUsers] == ["root"])
        let address = #expect(throws: CommandError.self) {
            try Configuration(
                file: path,
                optionChanges: [.setList(.allowedUsers, ["root"]), .setList(.clientListenAddresses, ["here"])],
                pool: nil
            ).readSettings()
        }
        #expect(address?.description.hasPrefix("--listen: here: give a numeric address") == true)
    }

    @Test func `without a pool the settings of workers are ignored`() throws {
        let path = try folder.file("config.toml", "workers = 3\norigin-limit = 3\n")
        let settings = try Configuration(file: path, optionChanges: [], pool: nil).readSettings()
        #expect(settings[.workers] == nil)
        #expect(settings[.originLimit] == 3)
    }

    @Test func `a configured number of workers is cut to the most`() throws {
        let path = try folder.file("config.toml", "workers = 30\n")
        let pool = Configuration.Pool(workerCount: 2, slotsPerWorker: 64)
        let settings = try Configuration(file: path, optionChanges: [], pool: pool, maximumWorkers: 4).readSettings()
        #expect(settings[.workers] == 4)
    }

    @Test func `a file that an option names must exist`() {
        #expect(throws: CommandError.self) {
            try Configuration(file: folder.path + "/none.toml", optionChanges: [], pool: nil).readSettings()
        }
    }

    @Test func `each setting has a variable of its own`() {
        #expect(Configuration.environmentVariable(.originLimit) == "EARSHOT_ORIGIN_LIMIT")
        #expect(Set(SettingName.allCases.map(Configuration.environmentVariable)).count == SettingName.allCases.count)
    }
}
