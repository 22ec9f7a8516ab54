//! An actor that is lost while a stop command runs.
use super::*;

/// Whoever was lost: the command is killed and reaped like its server, and `closed` is said behind it.
#[test]
fn g12_g15_an_actor_lost_while_a_stop_command_runs_leaves_nothing_of_it() {
    for (who, how) in ALL {
        run(|world| async move {
            let mut request = world.request(Mode::Exclusive, &["cat"]);
            let words = ["sh", "-c", STUBBORN].map(|word| CString::new(word).unwrap());
            let command = StopCommand { args: words.to_vec(), timeout: Duration::from_secs(50) };
            request.servers[0].stop_command = Some(command);
            world.supervisor.open(request).await.unwrap();
            let close = world.supervisor.close(world.target(None), options(), true, None);
            let lose_it = async {
                // The server leaves at the end of its input; then its command runs, with its helper.
                until("the command runs", || world.pids().len() >= 3).await;
                lose(&world, who, how);
            };
            let (closed, ()) = tokio::join!(close, lose_it);
            let certificate = closed.unwrap();
            assert_eq!(certificate.outcome, Outcome::Closed, "{who:?} {how:?}: {certificate:?}");
            assert_eq!(world.pids(), Vec::<u32>::new(), "{who:?} {how:?}: said closed of what is alive");
            works_again(&world).await;
        });
    }
}
