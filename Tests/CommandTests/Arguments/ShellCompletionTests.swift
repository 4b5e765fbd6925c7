import EarshotCore
import Testing

@testable import earshot

/// Completions of words that depend on earlier words or on the broker.
@Suite struct ShellCompletionTests {
    @Test func `the first word of set is a setting or a kind of rule`() {
        #expect(
            ShellCompletion.nextSettingWords(after: []) == SettingName.allCases.map(\.rawValue) + ["origin", "address"])
    }

    @Test(arguments: [
        (["http2"], ["auto", "off"]), (["address-policy"], ["all", "public-only"]), (["slots"], []),
        (["no-setting"], []),
        (["http2", "off"], []), (["address"], []), (["address", "10.0.0.0/8"], ["allow", "deny", "default"]),
        (["address", "10.0.0.0/8", "deny"], []), (["origin"], []),
        (["origin", "*.example.org"], ["limit=", "spacing=", "http2=auto", "http2=off", "rate=", "default"]),
        (["origin", "*.example.org", "spacing=2"], ["limit=", "http2=auto", "http2=off", "rate="]),
    ])
    func `the next word of set depends on those before it`(words: [String], expected: [String]) {
        #expect(ShellCompletion.nextSettingWords(after: words) == expected)
    }

    @Test func `a handler name that a shell would expand is not offered`() {
        for name in ["gallery/1", "a.b_c-d+e,f@g%h"] { #expect(ShellCompletion.isShellSafe(name), "\(name)") }
        for name in [
            "$(date)", "a;b", "`date`", "*", "a'b", "a\"b", "a\\b", "~", "a:b", "a=b", "{a}", "#a", "a&b", "a|b", "<a",
            "!1",
        ] {
            #expect(!ShellCompletion.isShellSafe(name), "\(name)")
        }
    }
}
