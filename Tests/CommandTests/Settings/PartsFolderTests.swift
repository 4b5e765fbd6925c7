import ArgumentParser
import EarshotBroker
import EarshotClient
import EarshotCore
import Testing

@testable import earshot

/// Directory of partial bodies of each way to start a broker.
@Suite struct PartsFolderTests {
    private func parts(_ cache: [String], _ place: [String] = []) throws -> String? {
        let place = try RuntimeOptions.parse(place)
        return try CacheOptions.parse(cache).partialBodiesFolder(place, place.runtimeFolder())
    }

    @Test func `it is beside the cache, also without one`() throws {
        #expect(try parts(["--cache-folder", "/a/b/"]) == "/a/parts")
        #expect(try parts(["--cache-folder", "/a/b"], ["--runtime", "/run/x"]) == "/a/parts")
        #expect(try parts([], ["--runtime", "/run/x"]) == "/run/x/parts")
        #expect(try parts(["--no-cache"], ["--runtime", "/run/x"]) == "/run/x/parts")
        for options in [[], ["--no-cache"]] {
            #expect(try parts(options) == RuntimeFolder.partsPath(besideCache: nil))
        }
    }

    @Test(arguments: [nil, "/a/parts"])
    func `a child has that of its supervisor`(path: String?) throws {
        let folder = try RuntimeFolder(named: "/run/x")
        var options = BrokerOptions(runtimeFolder: folder.path, spoolFolder: "/a/spool")
        options.partsFolder = path
        let words = ChildRun.broker(options, cluster: nil)
            .arguments(in: folder, secret: nil, options.settings.logLevel, .text)
        #expect(try BrokerCommand.parse(Array(words.dropFirst(2))).partsFolder == path)
    }
}
